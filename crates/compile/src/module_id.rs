//! Names of internal linkage without the compiler's process in them.
//!
//! Where a template is instantiated by name, NVRTC marks each `static` function with an id of the translation unit: a hash and the number of
//! the compiling process (`_INTERNAL_00000000_7_mine_cu_f0cf39b1_29960`). The same source would then give other PTX each time. The id is
//! replaced by zeros, in symbols and in the bytes of the line table's strings; two translation units never meet in one module here.

const MARK: &str = "_INTERNAL_";
/// The compiler writes forty bytes to a line.
const BYTES_A_LINE: usize = 40;

/// The text with every id replaced.
pub(crate) fn stable(ptx: &str) -> String {
    let mut out = String::with_capacity(ptx.len());
    let mut bytes: Option<Vec<u8>> = None;
    for line in ptx.split_inclusive('\n') {
        if let Some(collected) = &mut bytes {
            if let Some(more) = numbers(line) {
                collected.extend(more);
                continue;
            }
            write(bytes.take().unwrap_or_default(), &mut out);
        }
        out.push_str(&stable_names(line));
        if line.starts_with("$L__info_string") {
            bytes = Some(Vec::new());
        }
    }
    write(bytes.unwrap_or_default(), &mut out);
    out
}

/// A mangled name, or any text with some in it, with the ids replaced: `_ZN57_INTERNAL_..._f0cf39b1_29960` names its own length.
pub(crate) fn stable_names(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("_ZN") {
        let (before, name) = rest.split_at(at);
        out.push_str(before);
        let digits = name[3..].bytes().take_while(u8::is_ascii_digit).count();
        let start = 3 + digits;
        let component = name[3..start].parse().ok().and_then(|n: usize| name.get(start..start.checked_add(n)?));
        match component.and_then(|c| Some((c, without_id(c)?))) {
            Some((component, stable)) => {
                out.push_str(&format!("_ZN{}{stable}", stable.len()));
                rest = &name[start + component.len()..];
            }
            None => {
                out.push_str(&name[..3]);
                rest = &name[3..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn without_id(component: &str) -> Option<String> {
    let (head, process) = component.strip_prefix(MARK)?.rsplit_once('_')?;
    let (head, hash) = head.rsplit_once('_')?;
    let is_id =
        hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit()) && process.bytes().all(|b| b.is_ascii_digit());
    is_id.then(|| format!("{MARK}{head}_00000000_0"))
}

/// The bytes of a line `.b8 95,90,78`.
fn numbers(line: &str) -> Option<Vec<u8>> {
    line.trim().strip_prefix(".b8 ")?.split(',').map(|n| n.trim().parse().ok()).collect()
}

fn write(bytes: Vec<u8>, out: &mut String) {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => stable_names(&text).into_bytes(),
        Err(e) => e.into_bytes(),
    };
    for line in bytes.chunks(BYTES_A_LINE) {
        let numbers: Vec<String> = line.iter().map(u8::to_string).collect();
        out.push_str(&format!(".b8 {}\n", numbers.join(",")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> String {
        let mut out = String::from("ret;\n$L__info_string0:\n");
        write_plain(name, &mut out);
        out + "$L__info_string1:\n.b8 97,0\n}\n"
    }

    fn write_plain(name: &str, out: &mut String) {
        for line in [name.as_bytes(), &[0]].concat().chunks(BYTES_A_LINE) {
            let numbers: Vec<String> = line.iter().map(u8::to_string).collect();
            out.push_str(&format!(".b8 {}\n", numbers.join(",")));
        }
    }

    #[test]
    fn two_processes_give_one_text_in_symbols_and_in_tables() {
        let a = "_ZN48_INTERNAL_00000000_10_instance_cu_f0cf39b1_299603decEh";
        let b = "_ZN47_INTERNAL_00000000_10_instance_cu_247314e6_99993decEh";
        assert_eq!(stable_names(a), "_ZN44_INTERNAL_00000000_10_instance_cu_00000000_03decEh");
        assert_eq!(stable_names(a), stable_names(b));
        assert_eq!(stable(&format!("call {a}, (x);\n{}", table(a))), stable(&format!("call {b}, (x);\n{}", table(b))));
    }

    #[test]
    fn what_has_no_id_stays_as_it_is() {
        for text in [
            "_ZN4cuda3std5clampE",
            "_ZN99_INTERNAL_short",
            "_ZN",
            "_ZN10_INTERNAL_",
            "mov.u32 %r1, %r2;\n",
            "_ZN18446744073709551616a",
        ] {
            assert_eq!(stable(text), text);
        }
        let plain = table("_Z6attendILi64ELb1EEvPKhS1_S1_PKfS3_S3_P6__halffx");
        assert_eq!(stable(&plain), plain);
    }
}
