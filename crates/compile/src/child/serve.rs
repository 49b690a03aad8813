//! The child's own side: reads a request, fences itself in, calls NVRTC, replies.

use super::nvrtc::Nvrtc;
use super::{ChildReply, ChildRequest, Job, sandbox};
use std::io::{Read, Write};

/// Largest request; the parent refuses larger sources long before.
const MAX_REQUEST: u64 = 256 << 20;
/// A log longer than this tells nobody anything.
const MAX_LOG: usize = 256 << 10;

/// Serves one request and ends the process.
pub fn child_main() -> ! {
    let code = match serve() {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("{why}");
            70
        }
    };
    // Not by returning: NVRTC's destructors at exit have nothing left to do that anyone needs.
    std::process::exit(code)
}

fn serve() -> Result<(), String> {
    let mut text = Vec::new();
    std::io::stdin().take(MAX_REQUEST).read_to_end(&mut text).map_err(|e| format!("no request: {e}"))?;
    let request: ChildRequest = serde_json::from_slice(&text).map_err(|e| format!("no request: {e}"))?;
    drop(text);
    sandbox::leave_with_parent();
    let reply = answer(&request);
    let json = serde_json::to_string(&reply).map_err(|e| e.to_string())?;
    let mut out = std::io::stdout().lock();
    write!(out, "\n{}{json}\n", request.mark).and_then(|()| out.flush()).map_err(|e| format!("no reader: {e}"))
}

fn answer(request: &ChildRequest) -> ChildReply {
    // The library first: it may lie where the fence will not let us read.
    let nvrtc = match Nvrtc::load(&request.nvrtc, request.builtins.as_deref()) {
        Ok(nvrtc) => nvrtc,
        Err(why) => return ChildReply::Broken { why },
    };
    if let Err(why) = sandbox::limit_self(request.memory_bytes, request.seconds) {
        return ChildReply::Broken { why };
    }
    sandbox::fence(&request.readable);
    match &request.job {
        Job::Probe => nvrtc.probe().unwrap_or_else(|why| ChildReply::Broken { why }),
        Job::Compile { name, source, options, expressions, ptx_limit } => {
            match nvrtc.compile(name, source, options, expressions) {
                Ok(mut out) => {
                    let ptx_bytes = out.ptx.len() as u64;
                    if ptx_bytes > *ptx_limit {
                        out.ptx.clear();
                    }
                    ChildReply::Compiled {
                        code: out.code,
                        log: clip(out.log),
                        ptx: out.ptx,
                        ptx_bytes,
                        lowered: out.lowered,
                    }
                }
                Err(why) => ChildReply::Broken { why },
            }
        }
    }
}

fn clip(mut log: String) -> String {
    if log.len() > MAX_LOG {
        let mut end = MAX_LOG;
        while !log.is_char_boundary(end) {
            end -= 1;
        }
        log.truncate(end);
        log.push_str("\n(the rest of the log was cut)\n");
    }
    log
}
