//! Lines and blobs on a stream of bytes: one JSON object on a line, then the raw bytes that it announces.

use super::protocol::{BlobHead, MAX_BLOB_BYTES, MAX_LINE, Message};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::io::{self, BufRead, Read, Write};

/// SHA-256 as 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The bytes that hexadecimal digits stand for.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|p| Some(digit(p[0])? << 4 | digit(p[1])?)).collect()
}

/// Why a stream gave no message.
#[derive(Debug)]
pub(super) enum WireError {
    /// It ended between messages.
    Closed,
    /// It ended inside of one, or failed.
    Broken(String),
    /// What came is not a message; its beginning.
    Garbled(String),
    /// The program on the other machine has ended with this code; the connection is whole.
    Ended(i32),
}

impl From<io::Error> for WireError {
    fn from(e: io::Error) -> WireError {
        WireError::Broken(e.to_string())
    }
}

/// Writes a message; `blobs` are in the order of its heads.
pub(super) fn send<T: Serialize>(out: &mut impl Write, message: &Message<T>, blobs: &[&[u8]]) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)?;
    for blob in blobs {
        out.write_all(blob)?;
    }
    out.flush()
}

/// One line without its end; nothing more at the end of the stream. A line beyond the limit is garbled.
pub(super) fn line(input: &mut impl BufRead) -> Result<String, WireError> {
    let mut bytes = Vec::new();
    let n = input.take(MAX_LINE as u64 + 1).read_until(b'\n', &mut bytes)?;
    if n == 0 {
        return Err(WireError::Closed);
    }
    if bytes.last() != Some(&b'\n') {
        return Err(if n > MAX_LINE {
            garbled(&bytes)
        } else {
            WireError::Broken("the stream ended within a line".into())
        });
    }
    bytes.pop();
    String::from_utf8(bytes).map_err(|e| garbled(e.as_bytes()))
}

/// The message on a line, and the blobs behind it, each compared with its hash.
pub(super) fn message<T: DeserializeOwned>(
    line: &str,
    input: &mut impl BufRead,
) -> Result<(Message<T>, Vec<Vec<u8>>), WireError> {
    let message: Message<T> = serde_json::from_str(line).map_err(|_| garbled(line.as_bytes()))?;
    let total = message.blobs.iter().fold(0u64, |n, b| n.saturating_add(b.bytes));
    if total > MAX_BLOB_BYTES {
        return Err(WireError::Garbled(format!(
            "a message announces {total} bytes; at most {MAX_BLOB_BYTES} are taken"
        )));
    }
    let blobs = message.blobs.iter().map(|head| blob(head, input)).collect::<Result<_, _>>()?;
    Ok((message, blobs))
}

fn blob(head: &BlobHead, input: &mut impl BufRead) -> Result<Vec<u8>, WireError> {
    // Memory grows with what arrives, not with what is announced.
    let mut bytes = Vec::with_capacity(head.bytes.min(64 << 20) as usize);
    input.take(head.bytes).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != head.bytes {
        return Err(WireError::Broken("the stream ended within a blob".into()));
    }
    if sha256(&bytes) != head.sha256 {
        return Err(WireError::Garbled(format!("a blob of {} bytes has not the hash that was announced", head.bytes)));
    }
    Ok(bytes)
}

/// The beginning of what came, fit for a message.
pub(super) fn garbled(bytes: &[u8]) -> WireError {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
    WireError::Garbled(start.chars().map(|c| if c.is_control() { '.' } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Reply, Request};
    use super::*;

    fn sent(blobs: &[&[u8]]) -> Vec<u8> {
        let heads = blobs.iter().map(|b| BlobHead { sha256: sha256(b), bytes: b.len() as u64 }).collect();
        let mut stream = Vec::new();
        let body = Request::Hello { protocol: 1, device: 0 };
        send(&mut stream, &Message { id: 7, body, blobs: heads }, blobs).expect("memory takes all");
        stream
    }

    fn receive(stream: &[u8]) -> Result<(Message<Request>, Vec<Vec<u8>>), WireError> {
        let mut input = stream;
        let text = line(&mut input)?;
        message(&text, &mut input)
    }

    #[test]
    fn what_is_sent_arrives_with_its_blobs() {
        let (message, blobs) = receive(&sent(&[b"new\nline", b"", &[0xff; 3]])).expect("it is whole");
        assert_eq!((message.id, message.body), (7, Request::Hello { protocol: 1, device: 0 }));
        assert_eq!(blobs, [b"new\nline".to_vec(), vec![], vec![0xff; 3]]);
    }

    #[test]
    fn what_is_cut_off_or_altered_is_not_taken() {
        let whole = sent(&[b"some bytes"]);
        for cut in [1, whole.len() / 2, whole.len() - 1] {
            assert!(matches!(receive(&whole[..cut]), Err(WireError::Broken(_))), "{cut}");
        }
        let mut altered = whole.clone();
        *altered.last_mut().expect("there are bytes") ^= 1;
        assert!(matches!(receive(&altered), Err(WireError::Garbled(_))));
        assert!(matches!(receive(b"Last login: Sat Nov 21\n"), Err(WireError::Garbled(_))));
        assert!(matches!(receive(&[0xff, b'\n']), Err(WireError::Garbled(_))));
        assert!(matches!(receive(b""), Err(WireError::Closed)));
        let huge =
            br#"{"id":1,"op":"hello","protocol":1,"device":0,"blobs":[{"sha256":"00","bytes":18446744073709551615}]}"#;
        assert!(matches!(receive(&[&huge[..], b"\n"].concat()), Err(WireError::Garbled(_))));
    }

    #[test]
    fn replies_keep_their_words() {
        let missing = Message { id: 3, body: Reply::Missing { sha256: vec!["ab".into()] }, blobs: vec![] };
        let text = serde_json::to_string(&missing).expect("plain data");
        assert_eq!(text, r#"{"id":3,"reply":"missing","sha256":["ab"]}"#);
    }

    #[test]
    fn hexadecimal_goes_both_ways() {
        assert_eq!(unhex(&hex(&[0, 0x7f, 0xff])), Some(vec![0, 0x7f, 0xff]));
        assert_eq!(unhex("abc"), None);
        assert_eq!(unhex("zz"), None);
    }
}
