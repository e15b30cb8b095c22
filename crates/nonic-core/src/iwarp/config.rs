//! Configuration of a NIC's iWARP queue pairs: timeouts, and which optional messages they use.

use std::time::Duration;

/// Habits of iWARP queue pairs. Waits that end with a closed stream are bounded by these.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IwarpConfig {
    /// How long a message that finds no receive stops the stream before the connection is terminated. RFC 5041 §7.1 leaves the
    /// choice: there is no receiver-not-ready on this wire, and a program that posts a moment late should not lose its connection.
    pub receive_grace: Duration,
    /// A responder that was not promised a first message must not send before one came (RFC 5044 §7.1.2). A program
    /// whose server sends first would wait for ever, so after this time the responder sends all the same. `None` keeps
    /// to the letter.
    pub first_send_grace: Option<Duration>,
    /// How long a responder waits for the promised first message.
    pub rtr_timeout: Duration,
    /// How long an initiator waits for the peer's first message before it repeats its ready message; ten and a hundred
    /// times as long after that, and then no more. Linux's siw does not notice what comes right behind its Reply until
    /// something else does.
    pub ready_again: Duration,
    /// How long a stream is still read, and its bytes discarded, after a Terminate was sent: closing at once would
    /// reset the connection and could destroy the Terminate on its way.
    pub terminate_linger: Duration,
    /// How long the peer may take to end its half after this side has ended its own.
    pub close_linger: Duration,
    /// Messages of RFC 7306.
    pub extensions: Extensions,
}

impl Default for IwarpConfig {
    fn default() -> Self {
        IwarpConfig {
            receive_grace: Duration::from_secs(1),
            first_send_grace: Some(Duration::from_millis(50)),
            rtr_timeout: Duration::from_secs(10),
            ready_again: Duration::from_millis(20),
            terminate_linger: Duration::from_secs(2),
            close_linger: Duration::from_secs(5),
            extensions: Extensions::All,
        }
    }
}

/// Which messages of RFC 7306 a queue pair sends and takes. A peer that does not know one ends the connection, and
/// nothing on the wire tells in advance.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Extensions {
    /// None.
    Off,
    /// Immediate data, as current hardware has it.
    Immediate,
    /// Immediate data and atomics.
    All,
}
