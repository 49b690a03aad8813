//! The other side of a [`super::Link`] for any question: reads requests from the standard input, and answers them, one after the other.

use super::protocol::{BlobHead, Message};
use super::wire::{self, WireError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufReader, BufWriter, Write};

/// Answers until the input ends. What is not a request is an error.
pub fn answer<Q: DeserializeOwned, R: Serialize>(
    mut handle: impl FnMut(Q, Vec<Vec<u8>>) -> (R, Vec<Vec<u8>>),
) -> io::Result<()> {
    let mut input = BufReader::new(io::stdin().lock());
    let mut out = BufWriter::new(io::stdout().lock());
    // Whatever a launcher has printed on this line is not part of the first reply.
    out.write_all(b"\n")?;
    loop {
        let received = wire::line(&mut input).and_then(|line| wire::message::<Q>(&line, &mut input));
        let (message, blobs) = match received {
            Ok(received) => received,
            Err(WireError::Closed | WireError::Broken(_)) => return Ok(()),
            Err(WireError::Garbled(what)) => return Err(io::Error::other(format!("no request: {what}"))),
            Err(WireError::Ended(_)) => return Ok(()),
        };
        let (body, blobs) = handle(message.body, blobs);
        let heads = blobs.iter().map(|b| BlobHead { sha256: wire::sha256(b), bytes: b.len() as u64 }).collect();
        let bytes: Vec<&[u8]> = blobs.iter().map(Vec::as_slice).collect();
        wire::send(&mut out, &Message { id: message.id, body, blobs: heads }, &bytes)?;
    }
}
