//! Requests: what can be asked of a process, in one line.

/// What every conversation begins with, on both sides. The number changes when an older reader could not make sense of an answer;
/// fields and kinds of records may be added without.
pub(super) const GREETING: &str = "nonic-inspect/1";
/// The last line of an answer that is whole.
pub(super) const END: &str = "end";
/// The kind of the record that says why there is no answer.
pub(super) const REFUSAL: &str = "refused";
/// A request is no longer than this.
pub(super) const MAX_REQUEST: usize = 128;

/// What a process is asked for. Every answer begins with the process itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Nothing more: one record, `process`.
    Process,
    /// Its devices, with what they hold (`device`) and have counted (`counters`).
    Devices,
    /// Its queue pairs (`qp`).
    QueuePairs,
    /// Its memory keys (`mr`).
    MemoryKeys,
    /// Its completion queues (`cq`).
    CompletionQueues,
    /// Its connections (`connection`) and listeners (`listener`).
    Connections,
}

impl Request {
    /// All of them.
    pub const ALL: [Request; 6] = [
        Request::Process,
        Request::Devices,
        Request::QueuePairs,
        Request::MemoryKeys,
        Request::CompletionQueues,
        Request::Connections,
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Request::Process => "process",
            Request::Devices => "device",
            Request::QueuePairs => "qp",
            Request::MemoryKeys => "mr",
            Request::CompletionQueues => "cq",
            Request::Connections => "connection",
        }
    }

    /// The line that asks for it, with its end.
    pub(super) fn line(self) -> String {
        format!("{GREETING} {}\n", self.word())
    }

    /// Reads a line, without its end; or why it cannot be answered.
    pub(super) fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let line = std::str::from_utf8(line).map_err(|_| "a request is one line of text")?;
        let (greeting, word) = line.split_once(' ').unwrap_or((line, ""));
        if greeting != GREETING {
            return Err("this process speaks nonic-inspect/1; use a nonic of its version");
        }
        let found = Request::ALL.into_iter().find(|request| request.word() == word);
        found.ok_or("this process knows no such request; use a nonic of its version")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        for request in Request::ALL {
            let line = request.line();
            assert!(line.len() <= MAX_REQUEST);
            assert_eq!(Request::parse(line.trim_end().as_bytes()), Ok(request));
        }
        for wrong in [
            "",
            "qp",
            "nonic-inspect/2 qp",
            "nonic-inspect/1",
            "nonic-inspect/1 qp ",
        ] {
            assert!(Request::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Request::parse(&bytes);
        }
    }
}
