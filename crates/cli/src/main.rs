//! `warpsmith`: arguments -> configuration -> library -> exit code. The only crate that prints.

mod args;
mod artifacts;
mod catalog;
mod cmd;
mod error;
mod evolve;
mod evolve_page;
mod evolve_text;
mod evolve_timed;
mod interrupt;
mod on;
mod on_compile;
mod output;
mod paths;
mod progress;
mod proposer;
mod reports;
mod session;
mod toolkits;

use args::{Cli, Command};
use clap::Parser;
use clap::error::ErrorKind;
use error::CliError;
use std::ffi::OsString;

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|a| a == warpsmith_compile::CHILD_ARG) {
        warpsmith_compile::child_main();
    }
    if arguments.get(1).is_some_and(|a| a == warpsmith_eval::worker::WORKER_ARG) {
        warpsmith_eval::worker::worker_main(&arguments[2..]);
    }
    if arguments.get(1).is_some_and(|a| a == on_compile::ARG) {
        on_compile::serve();
    }
    if arguments.get(1).is_some_and(|a| a == warpsmith_eval::tool::SERVE_ARG) {
        std::process::exit(warpsmith_eval::tool::serve(arguments.get(2).map_or(".".as_ref(), |a| a.as_ref())));
    }
    if arguments.get(1).is_some_and(|a| a == warpsmith_eval::tool::BEHIND_ARG) {
        std::process::exit(warpsmith_eval::tool::behind(&arguments[2..]));
    }
    let json = arguments.iter().any(|a| a == "--json");
    let code = match Cli::try_parse_from(&arguments) {
        Ok(cli) => match dispatch(&cli) {
            Ok(code) => code,
            Err(error) => output::error(&error, cli.common.json),
        },
        Err(error) => usage(&error, json),
    };
    paths::give_back();
    std::process::exit(code);
}

fn dispatch(cli: &Cli) -> Result<i32, CliError> {
    let common = &cli.common;
    match &cli.command {
        None => cmd::check::main_job(common),
        Some(Command::Check(check)) => cmd::check::check(common, check),
        Some(Command::Evolve(args)) => cmd::evolve::evolve(common, args),
        Some(Command::Bench(bench)) => cmd::bench::bench(common, bench),
        Some(Command::Profile(args)) => cmd::profile::profile(common, args),
        Some(Command::Exec(args)) => cmd::exec::exec(common, args),
        Some(Command::List) => cmd::list::list(common),
        Some(Command::Explain { code }) => cmd::explain::explain(common, code.as_deref()),
        Some(Command::New(what)) => cmd::new::new(common, what),
        Some(Command::Toolkit { fetch }) => cmd::toolkit::toolkit(common, *fetch),
        Some(Command::Cache { action }) => cmd::cache::cache(common, action.as_ref()),
        Some(Command::Report { run }) => cmd::report::report(common, run),
        Some(Command::Compare(args)) => cmd::compare::compare(common, args),
        Some(Command::Evidence(args)) => cmd::evidence::evidence(common, args),
        Some(Command::History(args)) => cmd::history::history(common, args),
        Some(Command::Brief { run }) => cmd::brief::brief(common, run),
        Some(Command::Doctor { measure }) => cmd::doctor::doctor(common, *measure),
    }
}

/// Help and version are no errors; all else that clap refuses is wrong usage.
fn usage(error: &clap::Error, json: bool) -> i32 {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return 0;
    }
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let message = lines.next().unwrap_or("wrong usage").trim_start_matches("error: ").to_string();
    let hint: Vec<_> = lines.collect();
    output::error(&CliError::usage("wrong-usage", message).hint(hint.join("; ")), json)
}
