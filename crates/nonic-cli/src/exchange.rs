//! The messages by which two processes agree on a run, and their wording.
//!
//! Plain text, one message a line: a verb, then `key=value` fields, so that it can be read in a packet capture.
//! `text=` takes the rest of the line. How lines travel is [`crate::conversation`]'s business.
//!
//! ```text
//! client                                         server
//! nonic version=2                           →
//!                                           ←    nonic version=2 mtu=4096 port=50123
//! run test=bw service=rc op=write size=…    →
//!              … queue pairs are connected, to that port …
//! memory at=0x0,0x00c0ffee,65536            →
//!                                           ←    memory at=…
//! ready                                     →
//!                                           ←    ready
//!                      … RDMA …
//! done messages=4711                        →
//!                                           ←    result messages=4711 bytes=…
//! ```
//!
//! Datagram queue pairs are not connected; both sides say `endpoint at=127.0.0.1,0x1a2000,…` for each instead. A
//! side that cannot go on says `error text=…` and hangs up.

use anyhow::{Result, anyhow, bail};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The version of this conversation.
pub(crate) const VERSION: u32 = 2;
/// Where servers listen unless told otherwise.
pub(crate) const DEFAULT_PORT: u16 = 18515;
/// How long an answer may take that needs no measurement first.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    verb: String,
    fields: Vec<(String, String)>,
}

impl Message {
    pub(crate) fn verb(&self) -> &str {
        &self.verb
    }

    pub(crate) fn new(verb: &str) -> Self {
        Message {
            verb: verb.to_owned(),
            fields: Vec::new(),
        }
    }

    /// Adds a field. Values are our own numbers and names, without blanks.
    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.fields.push((key.to_owned(), value.to_string()));
        self
    }

    /// A field that must be there.
    pub(crate) fn field<T: FromStr>(&self, key: &str) -> Result<T> {
        let value = self
            .fields
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
            .ok_or_else(|| {
                anyhow!(
                    "the peer's `{}` has no `{key}`; is it another version?",
                    self.verb
                )
            })?;
        value.parse().map_err(|_| {
            anyhow!(
                "the peer's `{}` has a `{key}` that makes no sense: {value}",
                self.verb
            )
        })
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verb)?;
        for (key, value) in &self.fields {
            write!(f, " {key}={}", value.replace(['\n', '\r'], " "))?;
        }
        Ok(())
    }
}

impl FromStr for Message {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let (verb, mut rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        let mut message = Message::new(verb);
        while !rest.is_empty() {
            let (key, after) = rest
                .split_once('=')
                .ok_or_else(|| anyhow!("not a line of this conversation: {line:.80}"))?;
            let (value, tail) = match key {
                "text" => (after, ""),
                _ => after.split_once(' ').unwrap_or((after, "")),
            };
            message = message.with(key, value);
            rest = tail;
        }
        Ok(message)
    }
}

/// A message of another verb is the peer's complaint, or nonsense.
pub(crate) fn expected(verb: &str, message: Message) -> Result<Message> {
    match message.verb.as_str() {
        other if other == verb => Ok(message),
        "error" => bail!("the peer gave up: {}", message.field::<String>("text")?),
        other => bail!("the peer said `{other:.40}` where `{verb}` was due; is it another version?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_text_form() {
        let message = Message::new("run")
            .with("size", 64)
            .with("op", "write")
            .with("text", "with = signs and blanks");
        assert_eq!(
            message.to_string().parse::<Message>().expect("well formed"),
            message
        );
        let plain = Message::new("ready");
        assert_eq!("ready\n".parse::<Message>().expect("well formed"), plain);
    }

    #[test]
    fn a_line_of_something_else_is_refused() {
        assert!("GET / HTTP/1.1".parse::<Message>().is_err());
    }
}
