//! Requests of this side that the peer has not answered, and by what their answers are recognised.

/// A request whose answer has not come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Outstanding {
    /// Which request; `None` for the READ that only says that this side is ready.
    pub(super) number: Option<u64>,
    pub(super) answer: Answer,
    /// Its message number in queue 1.
    pub(super) msn: u32,
}

/// What identifies an answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Read { sink: u32, received: u32, length: u32 },
    Atomic { request_id: u32 },
}
