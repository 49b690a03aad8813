//! PTX text -> tokens, on demand, without a copy of the text.
//!
//! Knows words, numbers and punctuation, no grammar. A word after a dot is one token with its `::` parts
//! (`.shared::cta`), because PTX has no use of a lone dot. Source: PTX ISA 9.0, 4.3 to 4.5.

use crate::ParseError;

/// Where a token stands: both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    pub line: u32,
    pub column: u32,
}

impl At {
    pub fn error(self, message: impl Into<String>) -> ParseError {
        ParseError { line: self.line, column: self.column, message: message.into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A name: register, label, mnemonic, symbol; `%` and `$` are part of it.
    Word,
    /// `.name`; the text is without the dot.
    Dot,
    Int(i64),
    F32(u32),
    F64(u64),
    /// The text is without the quotes; escapes stay as written.
    Text,
    /// One punctuation mark, of one or two characters.
    Mark,
    End,
}

#[derive(Debug, Clone, Copy)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub at: At,
}

impl Token<'_> {
    pub fn is(&self, mark: &str) -> bool {
        self.kind == Kind::Mark && self.text == mark
    }

    /// The token as a message shows it.
    pub fn shown(&self) -> String {
        match self.kind {
            Kind::End => "the end of the text".into(),
            Kind::Dot => format!("`.{}`", shortened(self.text)),
            _ => format!("`{}`", shortened(self.text)),
        }
    }
}

/// At most 60 characters of a word: mangled names are long, and a message is one line.
pub fn shortened(text: &str) -> String {
    if text.chars().nth(60).is_none() {
        return text.to_string();
    }
    let mut short: String = text.chars().take(57).collect();
    short.push_str("...");
    short
}

pub struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Lexer<'a> {
    /// `text` is at most [`crate::limits::TEXT_BYTES`] long, so positions fit 32 bits.
    pub fn new(text: &'a str) -> Self {
        Lexer { text, bytes: text.as_bytes(), at: 0, line: 1, line_start: 0 }
    }

    /// The next token; after the last one always [`Kind::End`].
    pub fn next(&mut self) -> Result<Token<'a>, ParseError> {
        self.skip_blank()?;
        let at = self.position();
        let start = self.at;
        let Some(first) = self.peek(0) else {
            return Ok(Token { kind: Kind::End, text: "", at });
        };
        let (kind, skip, tail) = match first {
            b'0'..=b'9' => (self.number(at)?, 0, 0),
            b'.' if self.peek(1).is_some_and(is_word_byte) => {
                self.at += 1;
                self.dotted();
                (Kind::Dot, 1, 0)
            }
            b'"' => {
                self.string(at)?;
                (Kind::Text, 1, 1)
            }
            b'%' if !self.peek(1).is_some_and(is_word_byte) => (self.mark(), 0, 0),
            c if is_word_byte(c) || c == b'%' => {
                self.at += 1;
                self.word();
                (Kind::Word, 0, 0)
            }
            c if b",;:(){}[]<>+-*/!~&|^@=?".contains(&c) => (self.mark(), 0, 0),
            _ => {
                let c = self.text[start..].chars().next().unwrap_or('\u{fffd}');
                return Err(at.error(format!("unexpected character {c:?}")));
            }
        };
        Ok(Token { kind, text: &self.text[start + skip..self.at - tail], at })
    }

    /// Goes to the end of the line: for `@@DWARF` lines of old compilers.
    pub fn skip_line(&mut self) {
        while self.peek(0).is_some_and(|c| c != b'\n') {
            self.at += 1;
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn position(&self) -> At {
        At { line: self.line, column: (self.at - self.line_start) as u32 + 1 }
    }

    fn newline(&mut self) {
        self.at += 1;
        self.line += 1;
        self.line_start = self.at;
    }

    fn skip_blank(&mut self) -> Result<(), ParseError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'\n'), _) => self.newline(),
                // NVRTC ends its text with a NUL byte, which callers may have kept.
                (Some(b' ' | b'\t' | b'\r' | 0x0b | 0x0c | 0), _) => self.at += 1,
                (Some(b'/'), Some(b'/')) | (Some(b'#'), _) => self.skip_line(),
                (Some(b'/'), Some(b'*')) => {
                    let at = self.position();
                    self.at += 2;
                    loop {
                        match (self.peek(0), self.peek(1)) {
                            (Some(b'*'), Some(b'/')) => break,
                            (Some(b'\n'), _) => self.newline(),
                            (Some(_), _) => self.at += 1,
                            (None, _) => return Err(at.error("this comment has no end")),
                        }
                    }
                    self.at += 2;
                }
                _ => return Ok(()),
            }
        }
    }

    fn word(&mut self) {
        while self.peek(0).is_some_and(is_word_byte) {
            self.at += 1;
        }
    }

    fn dotted(&mut self) {
        loop {
            self.word();
            if self.peek(0) == Some(b':') && self.peek(1) == Some(b':') && self.peek(2).is_some_and(is_word_byte) {
                self.at += 2;
            } else {
                return;
            }
        }
    }

    fn string(&mut self, at: At) -> Result<(), ParseError> {
        self.at += 1;
        loop {
            match self.peek(0) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') if self.peek(1).is_some_and(|c| c != b'\n') => self.at += 2,
                Some(b'\n') | None => return Err(at.error("this string has no end")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn mark(&mut self) -> Kind {
        let two = self.bytes.get(self.at..self.at + 2).unwrap_or(&[]);
        const PAIRS: [&[u8]; 8] = [b"<<", b">>", b"<=", b">=", b"==", b"!=", b"&&", b"||"];
        self.at += if PAIRS.contains(&two) { 2 } else { 1 };
        Kind::Mark
    }

    fn number(&mut self, at: At) -> Result<Kind, ParseError> {
        let start = self.at;
        let second = self.peek(1).map(|c| c.to_ascii_lowercase());
        if self.peek(0) == Some(b'0') && matches!(second, Some(b'x' | b'f' | b'd' | b'b')) {
            self.at += 2;
            self.word();
            let digits = &self.text[start + 2..self.at];
            return match second {
                Some(b'f') => exact_bits(digits, 8, at).map(|bits| Kind::F32(bits as u32)),
                Some(b'd') => exact_bits(digits, 16, at).map(Kind::F64),
                Some(b'x') => integer(digits, 16, at),
                _ => integer(digits, 2, at),
            };
        }
        self.word();
        let mut float = false;
        if self.peek(0) == Some(b'.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            float = true;
            self.at += 1;
            self.word();
        }
        if self.text[start..self.at].ends_with(['e', 'E'])
            && matches!(self.peek(0), Some(b'+' | b'-'))
            && self.peek(1).is_some_and(|c| c.is_ascii_digit())
        {
            self.at += 1;
            self.word();
        }
        let text = &self.text[start..self.at];
        if float || text.contains(['e', 'E']) {
            let value: f64 = text.parse().map_err(|_| at.error(format!("`{}` is no number", shortened(text))))?;
            return Ok(Kind::F64(value.to_bits()));
        }
        let digits = text.trim_end_matches(['U', 'u']);
        if digits.len() > 1 && digits.starts_with('0') { integer(text, 8, at) } else { integer(text, 10, at) }
    }
}

fn is_word_byte(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'$'
}

fn integer(text: &str, radix: u32, at: At) -> Result<Kind, ParseError> {
    let digits = text.strip_suffix('U').or(text.strip_suffix('u')).unwrap_or(text);
    match u64::from_str_radix(digits, radix) {
        Ok(value) => Ok(Kind::Int(value as i64)),
        Err(_) => Err(at.error(format!("`{}` is no 64-bit integer of base {radix}", shortened(text)))),
    }
}

fn exact_bits(digits: &str, count: usize, at: At) -> Result<u64, ParseError> {
    if digits.len() != count {
        return Err(at.error(format!("a hexadecimal float of this kind has {count} digits, not {}", digits.len())));
    }
    u64::from_str_radix(digits, 16).map_err(|_| at.error(format!("`{digits}` is no hexadecimal number")))
}
