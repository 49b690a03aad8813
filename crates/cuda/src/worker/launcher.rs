//! A launcher: any command in front of `sh` that makes it run on another machine, `ssh gpu` for instance, and what its failures mean.
//!
//! A text is split into words as a POSIX shell splits it, without expansions: no shell sees it. `ssh` gets options that make it fail at once
//! where it would ask a person, and notice a connection that is gone, unless they are set already. It knows nothing of workers.
//! Limits: other programs that ask for passwords are not known by name; they meet the time limit.

use super::WorkerError;
use std::process::{Command, Stdio};

/// Seconds that `ssh` may take to connect.
const CONNECT_SECONDS: u32 = 10;
/// Bytes of a launcher's text at most.
const MAX_TEXT: usize = 4096;

/// A command in front of `sh`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    text: String,
    words: Vec<String>,
}

impl Launcher {
    /// Splits what was typed. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Launcher, String> {
        if text.len() > MAX_TEXT {
            return Err(format!("a launcher of {} bytes; at most {MAX_TEXT} are taken", text.len()));
        }
        if text.contains('\0') {
            return Err("a launcher with a NUL byte".into());
        }
        let words = shlex::split(text).ok_or("a quote of the launcher is not closed")?;
        if words.first().is_none_or(|program| program.is_empty()) {
            return Err("the launcher is empty".into());
        }
        Ok(Launcher { text: text.trim().to_string(), words })
    }

    /// As it was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn program(&self) -> &str {
        &self.words[0]
    }

    /// Whether its program is OpenSSH's client.
    pub fn is_ssh(&self) -> bool {
        let name = self.program().rsplit(['/', '\\']).next().unwrap_or_default();
        name.strip_suffix(".exe").unwrap_or(name) == "ssh"
    }

    /// Its host, where it is `ssh` and the host can be told from the options.
    fn host(&self) -> Option<&str> {
        // Those of ssh's options that take an argument (its manual, synopsis).
        const WITH_ARGUMENT: &str = "BbcDEeFIiJLlmOoPpQRSWw";
        let mut words = self.words.iter().skip(1).filter(|_| self.is_ssh());
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix('-') else { return Some(word) };
            // `-p22` has its argument with it, `-p 22` behind it, `-vp 22` too.
            if option.find(|c| WITH_ARGUMENT.contains(c)) == option.len().checked_sub(1) {
                words.next();
            }
        }
        None
    }

    /// The launcher with `sh` behind it, which is to read its script from the standard input.
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.program());
        if self.is_ssh() {
            let connect = format!("ConnectTimeout={CONNECT_SECONDS}");
            // No answer for a minute: the connection is gone.
            for option in ["BatchMode=yes", &connect, "ServerAliveInterval=15", "ServerAliveCountMax=4"] {
                if !self.sets(option) {
                    command.args(["-o", option]);
                }
            }
            command.arg("-T");
        }
        command.args(&self.words[1..]).arg("sh");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Whether `-o NAME...` is among its words; ssh takes the first value that it is given.
    fn sets(&self, option: &str) -> bool {
        let name = option.split('=').next().unwrap_or(option).to_ascii_lowercase();
        let begins = |word: &str| {
            let word = word.trim_start().to_ascii_lowercase();
            word.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['=', ' ', '\t']))
        };
        let pairs = self.words.windows(2).any(|w| w[0] == "-o" && begins(&w[1]));
        pairs || self.words.iter().any(|w| w.strip_prefix("-o").is_some_and(begins))
    }

    /// What a launcher that never reached a shell wants to say: `how` it ended, and the end of its standard error.
    pub fn failure(&self, how: &str, said: &str) -> WorkerError {
        let said = said.trim();
        let (code, hint) = self.explain(said);
        let behind = if said.is_empty() { String::new() } else { format!(": {}", last_lines(said, 4)) };
        WorkerError::Launcher {
            code,
            message: format!("`{}` does not lead to a shell ({how}){behind}", self.text),
            hint,
        }
    }

    fn explain(&self, said: &str) -> (&'static str, String) {
        let host = self.host().unwrap_or("HOST");
        let bare = host.rsplit('@').next().unwrap_or(host);
        let has = |texts: &[&str]| texts.iter().any(|t| said.contains(t));
        if !self.is_ssh() {
            return (
                "launcher-failed",
                format!(
                    "does `{} sh` give you a shell there? It has to pass its standard streams on, without a terminal",
                    self.text
                ),
            );
        }
        if has(&["REMOTE HOST IDENTIFICATION HAS CHANGED"]) {
            let hint = format!(
                "the key of {bare} is another than before. If you know why: `ssh-keygen -R {bare}`, then connect once by hand with `{}`",
                self.text
            );
            return ("ssh-host-key", hint);
        }
        if has(&["Host key verification failed", "No ED25519 host key is known", "host key is known for"]) {
            let hint = format!(
                "connect once by hand with `{}` and compare the fingerprint, or add a key that you trust: `ssh-keyscan {bare} >> ~/.ssh/known_hosts`",
                self.text
            );
            return ("ssh-host-key", hint);
        }
        if has(&["Permission denied", "Too many authentication failures", "no more authentication methods"]) {
            let hint = format!(
                "nothing here can type a password: `ssh-add` your key, or put it there with `ssh-copy-id {host}`; `{} true` has to work without a question",
                self.text
            );
            return ("ssh-denied", hint);
        }
        let reach = [
            ("Could not resolve", "is the name right? `ssh -G HOST` shows what it stands for"),
            ("Connection refused", "no ssh server answers there: is it started, and is the port right (`ssh -p`)?"),
            (
                "timed out",
                "the machine is off, or a firewall is in between: does `ping` reach it, do you need a VPN or `ssh -J`?",
            ),
            ("No route to host", "the network does not lead there: do you need a VPN, or `ssh -J`?"),
            ("Network is unreachable", "this machine has no network"),
            (
                "Connection reset",
                "the server hung up: is it still starting, or does it refuse many connections at once?",
            ),
            (
                "Connection closed",
                "the server hung up: is it still starting, or does it refuse many connections at once?",
            ),
        ];
        if let Some((_, hint)) = reach.iter().find(|(text, _)| said.contains(text)) {
            return ("ssh-unreachable", hint.replace("HOST", host));
        }
        ("launcher-failed", format!("`{} true` has to work by hand first", self.text))
    }
}

/// The last lines of a text, on one line.
pub(super) fn last_lines(text: &str, n: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(n)..].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let command = Launcher::parse(text).expect("a launcher").command();
        command.get_args().map(|a| a.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        for (text, want) in [
            ("srun --gres=gpu:1", vec!["--gres=gpu:1", "sh"]),
            ("docker exec -i 'my box'", vec!["exec", "-i", "my box", "sh"]),
            ("kubectl exec -i pod --", vec!["exec", "-i", "pod", "--", "sh"]),
            ("env A=\"b c\"", vec!["A=b c", "sh"]),
        ] {
            assert_eq!(words(text), want, "{text}");
        }
        for bad in ["", "  ", "ssh 'gpu", "a\0b"] {
            assert!(Launcher::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ssh_never_asks_unless_the_user_says_so() {
        let plain = words("/usr/bin/ssh gpu").join(" ");
        for option in ["-o BatchMode=yes", "-o ConnectTimeout=10", "-o ServerAliveInterval=15", "-T gpu sh"] {
            assert!(plain.contains(option), "{plain}");
        }
        for own in ["ssh -o BatchMode=no gpu", "ssh -oBatchMode=no gpu", "ssh -o 'batchmode no' gpu"] {
            assert!(!words(own).contains(&"BatchMode=yes".to_string()), "{own}");
            assert!(words(own).contains(&"ConnectTimeout=10".to_string()), "{own}");
        }
        assert!(!words("sshpass -e gpu").contains(&"BatchMode=yes".to_string()));
    }

    #[test]
    fn what_ssh_says_leads_to_the_next_step() {
        for (launcher, said, code, step) in [
            ("ssh gpu", "Host key verification failed.", "ssh-host-key", "ssh-keyscan gpu"),
            (
                "ssh -p 22 me@gpu",
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                "ssh-host-key",
                "ssh-keygen -R gpu",
            ),
            ("ssh -p22 me@gpu", "me@gpu: Permission denied (publickey,password).", "ssh-denied", "ssh-copy-id me@gpu"),
            (
                "ssh gpu",
                "ssh: Could not resolve hostname gpu: Name or service not known",
                "ssh-unreachable",
                "ssh -G gpu",
            ),
            ("ssh gpu", "ssh: connect to host gpu port 22: Connection refused", "ssh-unreachable", "started"),
            ("ssh gpu", "ssh: connect to host gpu port 22: Connection timed out", "ssh-unreachable", "firewall"),
            ("ssh gpu", "something else", "launcher-failed", "`ssh gpu true`"),
            ("docker exec -i box", "Error: No such container: box", "launcher-failed", "`docker exec -i box sh`"),
        ] {
            let error = Launcher::parse(launcher).expect("a launcher").failure("exit status: 255", said);
            assert_eq!(error.code(), code, "{said}");
            assert!(error.hint().contains(step), "{said}: {}", error.hint());
            assert!(error.to_string().contains(said.lines().last().unwrap_or_default()), "{error}");
        }
    }
}
