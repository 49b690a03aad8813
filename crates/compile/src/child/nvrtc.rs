//! The few functions of NVRTC that are needed, bound at run time. Source: NVRTC documentation, stable since CUDA 11.2.

use super::ChildReply;
use libloading::{Library, Symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

type Program = *mut c_void;
type Status = c_int;

pub(super) struct Nvrtc {
    library: Library,
    _builtins: Option<Library>,
}

pub(super) struct Compiled {
    pub code: i32,
    pub log: String,
    pub ptx: String,
    pub lowered: Vec<String>,
}

impl Nvrtc {
    pub fn load(path: &Path, builtins: Option<&Path>) -> Result<Nvrtc, String> {
        // NVRTC asks for its built-ins by bare name; one that is loaded already answers to it.
        let builtins = builtins.and_then(|p| open(p).ok());
        let library = open(path).map_err(|e| format!("NVRTC does not load: {e}"))?;
        Ok(Nvrtc { library, _builtins: builtins })
    }

    fn symbol<T>(&self, name: &str) -> Result<Symbol<'_, T>, String> {
        // SAFETY: every use names the type that NVRTC's header gives this function.
        unsafe { self.library.get(name.as_bytes()) }.map_err(|e| format!("NVRTC has no {name}: {e}"))
    }

    pub fn probe(&self) -> Result<ChildReply, String> {
        let (mut major, mut minor) = (0, 0);
        let version: Symbol<unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status> = self.symbol("nvrtcVersion")?;
        let count: Symbol<unsafe extern "C" fn(*mut c_int) -> Status> = self.symbol("nvrtcGetNumSupportedArchs")?;
        let list: Symbol<unsafe extern "C" fn(*mut c_int) -> Status> = self.symbol("nvrtcGetSupportedArchs")?;
        // SAFETY: the pointers are to live integers, and the list is as long as NVRTC says.
        let architectures = unsafe {
            let mut n = 0;
            if version(&mut major, &mut minor) != 0 || count(&mut n) != 0 || !(0..=1000).contains(&n) {
                return Err("NVRTC does not say its version".into());
            }
            let mut found = vec![0 as c_int; n as usize];
            if list(found.as_mut_ptr()) != 0 {
                return Err("NVRTC does not say its targets".into());
            }
            found
        };
        let architectures: Vec<u32> = architectures.into_iter().filter_map(|a| u32::try_from(a).ok()).collect();
        // The comment at the head of any PTX names the exact release; the version above has no build number.
        let target = architectures.iter().copied().find(|a| *a >= 80).or(architectures.last().copied()).unwrap_or(80);
        let options = [format!("--gpu-architecture=compute_{target}")];
        let out = self.compile("probe.cu", "extern \"C\" __global__ void probe() {}\n", &options, &[])?;
        if out.code != 0 {
            return Err(format!("NVRTC cannot compile an empty kernel: {}", out.log.trim()));
        }
        let release =
            out.ptx.lines().find_map(|l| l.split_once("Cuda compilation tools, ").map(|(_, r)| r.trim().to_owned()));
        Ok(ChildReply::Probed { version: (major, minor), architectures, release: release.unwrap_or_default() })
    }

    pub fn compile(
        &self,
        name: &str,
        source: &str,
        options: &[String],
        expressions: &[String],
    ) -> Result<Compiled, String> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> Status;
        type Text = unsafe extern "C" fn(Program, *mut c_char) -> Status;
        type Size = unsafe extern "C" fn(Program, *mut usize) -> Status;
        let create: Symbol<Create> = self.symbol("nvrtcCreateProgram")?;
        let add: Symbol<unsafe extern "C" fn(Program, *const c_char) -> Status> =
            self.symbol("nvrtcAddNameExpression")?;
        let compile: Symbol<unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status> =
            self.symbol("nvrtcCompileProgram")?;
        let lowered_name: Symbol<unsafe extern "C" fn(Program, *const c_char, *mut *const c_char) -> Status> =
            self.symbol("nvrtcGetLoweredName")?;
        let log_size: Symbol<Size> = self.symbol("nvrtcGetProgramLogSize")?;
        let log_text: Symbol<Text> = self.symbol("nvrtcGetProgramLog")?;
        let ptx_size: Symbol<Size> = self.symbol("nvrtcGetPTXSize")?;
        let ptx_text: Symbol<Text> = self.symbol("nvrtcGetPTX")?;

        let c = |text: &str| CString::new(text).map_err(|_| "a text for the compiler holds a NUL byte".to_owned());
        let (name, source) = (c(name)?, c(source)?);
        let options: Vec<CString> = options.iter().map(|o| c(o)).collect::<Result<_, _>>()?;
        let expressions: Vec<CString> = expressions.iter().map(|e| c(e)).collect::<Result<_, _>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();

        let fetch = |program: Program, size: &Symbol<Size>, text: &Symbol<Text>| -> Result<String, String> {
            // SAFETY: the buffer is as long as NVRTC says, its NUL included.
            unsafe {
                let mut n = 0usize;
                if size(program, &mut n) != 0 {
                    return Err("NVRTC does not say how long its answer is".into());
                }
                let mut buffer = vec![0u8; n.max(1)];
                if n > 0 && text(program, buffer.as_mut_ptr().cast()) != 0 {
                    return Err("NVRTC does not give its answer".into());
                }
                let end = buffer.iter().position(|b| *b == 0).unwrap_or(buffer.len());
                buffer.truncate(end);
                Ok(String::from_utf8_lossy(&buffer).into_owned())
            }
        };

        let mut program: Program = std::ptr::null_mut();
        // SAFETY: all strings live to the end of this function, and the program, which the process's end frees, is used on this thread only.
        unsafe {
            let status = create(&mut program, source.as_ptr(), name.as_ptr(), 0, std::ptr::null(), std::ptr::null());
            if status != 0 {
                return Err(format!("NVRTC takes no program (error {status})"));
            }
            for expression in &expressions {
                let status = add(program, expression.as_ptr());
                if status != 0 {
                    return Err(format!("NVRTC takes no name expression (error {status})"));
                }
            }
            let code = compile(program, pointers.len() as c_int, pointers.as_ptr());
            let log = fetch(program, &log_size, &log_text)?;
            let mut ptx = String::new();
            let mut lowered = Vec::new();
            if code == 0 {
                ptx = fetch(program, &ptx_size, &ptx_text)?;
                for expression in &expressions {
                    let mut found: *const c_char = std::ptr::null();
                    let status = lowered_name(program, expression.as_ptr(), &mut found);
                    let ok = status == 0 && !found.is_null();
                    lowered.push(if ok { CStr::from_ptr(found).to_string_lossy().into_owned() } else { String::new() });
                }
            }
            Ok(Compiled { code, log, ptx, lowered })
        }
    }
}

fn open(path: &Path) -> Result<Library, libloading::Error> {
    #[cfg(unix)]
    {
        use libloading::os::unix;
        // SAFETY: a toolkit's library, which the user chose or whose hash was checked; its initialisers are as trusted as its compiler.
        unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_GLOBAL).map(Library::from) }
    }
    #[cfg(not(unix))]
    {
        // SAFETY: as above.
        unsafe { Library::new(path) }
    }
}
