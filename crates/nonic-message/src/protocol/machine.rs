//! One side of a channel, as a machine without I/O.
//!
//! The program's messages go in by [`Machine::send`] and [`Machine::offer`], frames of the peer by [`Machine::receive`],
//! completions by [`Machine::sent`] and [`Machine::read_done`]; [`Machine::poll`] says what to post and [`Machine::take`] what
//! has arrived. Each of the first four may change the answers of the last two.
//!
//! Why a message never waits for a receive buffer, and memory is bounded:
//! - A message costs the sender a credit, in a frame or offered. The receiver gives it back when its program has taken the message. So
//!   no more than [`Greeting::credits`] messages wait here.
//! - All other frames come out of a reserve. Finishes answer offers, of which at most [`OFFERS`] are open. Frames that only return
//!   credits return at least half of them, so at most two have not been looked at. The others come once, or one at a time.
//!   [`Machine::receives`] is the sum: so many receives must be posted at any time.
//! - An offered message is read when it is the next one, or while what was read and not taken is within a budget.

use super::frame::{Frame, FrameError, HEADER_BYTES, Kind, Remote};
use super::greeting::Greeting;
use std::collections::VecDeque;

/// Offered messages that are not finished yet, at most, in each direction.
pub const OFFERS: usize = 8;

/// Credits that are used, however many a peer gives: what is sent and not taken yet is kept here.
const MOST_CREDITS: u16 = 1024;

/// Frames that are posted and not completed, at most; more wait here for their turn.
const SEND_SLOTS: usize = 64;

/// Frames beside messages that can be waiting to be looked at: one finish for each offer, two that return credits, and one each of
/// hello, end, trial done and cut-off.
const RESERVE: usize = OFFERS + 2 + 4;

/// Which side this is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// It asked for the connection, and sends first: iWARP wants it so (RFC 5044 §7.1.2).
    Connector,
    /// It was asked, and sends nothing before it has heard of the other.
    Acceptor,
}

/// What to post.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<P> {
    /// SEND a frame, with the payload behind it, if there is one. Say when it has completed: [`Machine::sent`].
    Send {
        /// The frame.
        frame: Frame,
        /// What follows it.
        payload: Option<P>,
    },
    /// READ an offered message. Say when it is here: [`Machine::read_done`].
    Read {
        /// Which one.
        id: ReadId,
        /// Where it is.
        remote: Remote,
        /// How long it is, which is checked against what this side takes.
        length: u64,
    },
    /// READ nothing. It completes when the peer's NIC has placed everything that was posted before, on either wire and whatever
    /// its program does. Say so: [`Machine::confirmed`].
    Confirm,
}

/// Which READ has completed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ReadId {
    /// That of a message, by its number.
    Message(u32),
    /// That of a trial.
    Trial,
}

/// What [`Machine::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<Q> {
    /// The next message.
    Message(Q),
    /// None yet.
    Nothing,
    /// None will come: the peer has said so, and all of its messages were taken.
    End,
    /// None will come: the connection ended before the peer had said so.
    Lost,
}

/// The connection ended, or this side has said that it sends no more.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the channel has ended")]
pub struct Ended;

/// What a peer did that it must not.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// It sent more messages than it had credits for.
    #[error("the peer sent a message without a credit")]
    WithoutCredit,
    /// It returned credits that it was not given.
    #[error("the peer returned credits that it never had")]
    CreditsInvented,
    /// A message has another number than the next one.
    #[error("the peer's messages are not in order")]
    OutOfOrder,
    /// More than [`OFFERS`] are open.
    #[error("the peer offered too many messages at once")]
    TooManyOffers,
    /// It is longer than we said that we take.
    #[error("the peer's message is longer than it may be")]
    TooLong,
    /// It finished what was not offered, or a trial that is not under way.
    #[error("the peer answered what it was not asked")]
    Unasked,
    /// A frame came before the first one, or that one again.
    #[error("the peer did not begin with a greeting, or began twice")]
    Hello,
    /// It sent a message after it had said that none would follow.
    #[error("the peer sent a message after the end")]
    AfterEnd,
}

/// Why a peer's frame was not taken. The connection is of no use any more.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// It is not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It must not come now.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// A message that was not taken yet.
#[derive(Debug)]
enum Slot<Q> {
    /// To be read when there is room.
    Offered { remote: Remote, length: u64 },
    /// Being read.
    Reading { length: u64 },
    /// Here; so many bytes of it count against the budget.
    Ready { message: Q, counted: u64 },
}

/// How far this side's own end has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum OwnEnd {
    Open,
    /// To be said when all messages were.
    Due,
    Said,
    /// The peer's NIC is being asked whether it has it.
    Asked,
    Arrived,
}

/// A trial that the peer offers; one at a time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum TrialRead {
    None,
    Offered(Remote, u64),
    Reading,
}

/// One side of a channel: `P` is what the program sends, `Q` what it receives.
#[derive(Debug)]
pub struct Machine<P, Q> {
    own: Greeting,
    peer: Greeting,
    /// Bytes that may be read ahead of the program.
    read_ahead: u64,
    cutoff: u64,
    cutoff_told: bool,
    closed: bool,

    may_send: bool,
    credits: u16,
    next: u32,
    messages: VecDeque<(Frame, Option<P>)>,
    control: VecDeque<Frame>,
    offers: VecDeque<(u32, P)>,
    /// What is offered as a trial, or `None` for one that is in a frame.
    trial: Option<Option<P>>,
    own_end: OwnEnd,
    /// Frames that are posted and not completed, in order.
    posted: VecDeque<Kind>,
    /// When the connection ended, messages had not completed.
    left_behind: bool,

    heard: bool,
    inbox: VecDeque<Slot<Q>>,
    /// The number of the first message in the inbox.
    first: u32,
    /// Of these, how many are to be read, and how many are not here yet.
    to_read: usize,
    unread: usize,
    read_bytes: u64,
    trial_read: TrialRead,
    owed: u16,
    peer_ended: bool,
}

impl<P, Q> Machine<P, Q> {
    /// One side of a new channel: what we take, what the peer takes, and how many bytes may be read ahead of the program.
    pub fn new(role: Role, own: Greeting, peer: Greeting, read_ahead: u64) -> Self {
        let connector = role == Role::Connector;
        let peer = Greeting {
            credits: peer.credits.min(MOST_CREDITS),
            ..peer
        };
        let mut machine = Machine {
            own,
            peer,
            read_ahead,
            cutoff: 0,
            cutoff_told: false,
            closed: false,
            may_send: connector,
            credits: peer.credits,
            next: 0,
            messages: VecDeque::new(),
            control: VecDeque::new(),
            offers: VecDeque::new(),
            trial: None,
            own_end: OwnEnd::Open,
            posted: VecDeque::new(),
            left_behind: false,
            heard: connector,
            inbox: VecDeque::new(),
            first: 0,
            to_read: 0,
            unread: 0,
            read_bytes: 0,
            trial_read: TrialRead::None,
            owed: 0,
            peer_ended: false,
        };
        machine.set_cutoff(u64::MAX);
        if connector {
            machine.control.push_back(Frame::control(Kind::Hello, 0));
        }
        machine
    }

    /// How many receives must be posted at any time, for a side that takes so many messages.
    pub fn receives(credits: u16) -> usize {
        usize::from(credits) + RESERVE
    }

    /// How many frames [`Machine::poll`] asks for before some have completed, whatever the peer.
    pub fn most_send_slots() -> usize {
        SEND_SLOTS
    }

    /// Messages up to this length go in frames, longer ones are offered.
    pub fn cutoff(&self) -> u64 {
        self.cutoff
    }

    /// Sets the cut-off, at most what the peer's frames hold.
    pub fn set_cutoff(&mut self, cutoff: u64) {
        self.cutoff = cutoff.min(u64::from(self.peer.frame_bytes) - HEADER_BYTES as u64);
    }

    /// Whether the peer has said what the cut-off is.
    pub fn is_cutoff_told(&self) -> bool {
        self.cutoff_told
    }

    /// Whether no message will come, and all that came were taken.
    pub fn is_at_end(&self) -> bool {
        match self.inbox.front() {
            None => self.peer_ended || self.closed,
            Some(Slot::Ready { .. }) => false,
            Some(_) => self.closed,
        }
    }

    /// Tells the peer this side's cut-off, once.
    pub fn tell_cutoff(&mut self) {
        let frame = Frame {
            length: self.cutoff,
            ..Frame::control(Kind::Cutoff, 0)
        };
        self.control.push_back(frame);
    }

    /// The longest message that the peer takes.
    pub fn longest(&self) -> u64 {
        self.peer.message_bytes
    }

    /// Messages that may be sent before the peer returns credits.
    pub fn credits(&self) -> u16 {
        self.credits
    }

    /// Credits that go back to the peer with the next frame.
    pub fn owed(&self) -> u16 {
        self.owed
    }

    /// Messages that are here and were not taken.
    pub fn arrived(&self) -> usize {
        self.inbox.len() - self.unread
    }

    /// Whether a message of this length goes in a frame.
    pub fn is_eager(&self, length: u64) -> bool {
        length <= self.cutoff
    }

    /// Whether a message of this length can be sent now; without one, whether one of any length can. Once it can it stays so until
    /// something is sent, or the channel ends.
    pub fn can_send(&self, length: Option<u64>) -> Result<bool, Ended> {
        if self.closed || self.own_end != OwnEnd::Open {
            return Err(Ended);
        }
        let eager = length.is_some_and(|length| self.is_eager(length));
        Ok(self.credits > 0 && (eager || self.offers.len() < OFFERS))
    }

    /// Sends a message in a frame.
    ///
    /// # Panics
    ///
    /// If [`Machine::can_send`] says that it cannot be.
    pub fn send(&mut self, payload: P, length: u64) {
        let frame = Frame {
            length,
            ..self.next_message(Kind::Message, length)
        };
        self.messages.push_back((frame, Some(payload)));
    }

    /// Offers a message that the peer will read. It is kept until then.
    ///
    /// # Panics
    ///
    /// As [`Machine::send`].
    pub fn offer(&mut self, payload: P, remote: Remote, length: u64) {
        let frame = Frame {
            length,
            remote: Some(remote),
            ..self.next_message(Kind::Offer, length)
        };
        self.offers.push_back((frame.sequence, payload));
        self.messages.push_back((frame, None));
    }

    fn next_message(&mut self, kind: Kind, length: u64) -> Frame {
        let length = (kind == Kind::Message).then_some(length);
        assert_eq!(self.can_send(length), Ok(true), "ask before sending");
        self.credits -= 1;
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        Frame::control(kind, sequence)
    }

    /// Sends a trial in a frame or, with a place, offers one. Not while another is under way.
    ///
    /// # Panics
    ///
    /// As [`Machine::send`].
    pub fn send_trial(&mut self, payload: P, length: u64, remote: Option<Remote>) {
        assert_eq!(self.can_send(None), Ok(true), "ask before sending");
        assert!(self.trial.is_none(), "one trial at a time");
        self.credits -= 1;
        let kind = remote.map_or(Kind::Trial, |_| Kind::TrialOffer);
        let frame = Frame {
            length,
            remote,
            ..Frame::control(kind, 0)
        };
        let (kept, sent) = match remote {
            Some(_) => (Some(payload), None),
            None => (None, Some(payload)),
        };
        self.trial = Some(kept);
        self.messages.push_back((frame, sent));
    }

    /// Whether a trial is under way.
    pub fn in_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Says that no message follows, after those that were sent.
    pub fn end(&mut self) {
        if self.own_end == OwnEnd::Open {
            self.own_end = OwnEnd::Due;
        }
    }

    /// Whether the peer has this side's end and all that came before: in its receive buffers, or read by it. One that has said its
    /// own end and then left had all that it wanted, if everything had been sent.
    pub fn is_end_arrived(&self) -> bool {
        let arrived = self.own_end == OwnEnd::Arrived && self.offers.is_empty() && !self.left_behind;
        arrived || (self.closed && self.peer_ended && !self.left_behind)
    }

    /// Whether all that was sent has left: frames have completed, that of the end too, and offered messages were read.
    pub fn is_flushed(&self) -> bool {
        self.own_end != OwnEnd::Due
            && self.messages.is_empty()
            && self.posted.is_empty()
            && self.offers.is_empty()
            && self.control.is_empty()
    }

    /// The connection has ended. What has arrived can still be taken.
    pub fn close(&mut self) {
        if self.closed {
            return;
        }
        self.closed = true;
        let is_message = |kind: &Kind| matches!(kind, Kind::Message | Kind::Offer);
        self.left_behind =
            !self.messages.is_empty() || !self.offers.is_empty() || self.posted.iter().any(is_message);
        self.messages.clear();
        self.control.clear();
        self.offers.clear();
        self.trial = None;
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// What to post next, if there is something. The answer can change with every call of another method.
    pub fn poll(&mut self) -> Option<Action<P>> {
        if self.closed || !self.may_send {
            return None;
        }
        if let Some(read) = self.next_read() {
            return Some(read);
        }
        if self.own_end == OwnEnd::Said {
            self.own_end = OwnEnd::Asked;
            return Some(Action::Confirm);
        }
        if self.posted.len() >= SEND_SLOTS {
            return None;
        }
        let (mut frame, payload) = match self.control.pop_front() {
            Some(frame) => (frame, None),
            None => self.messages.pop_front().or_else(|| self.last_words())?,
        };
        frame.credits = std::mem::take(&mut self.owed);
        self.posted.push_back(frame.kind);
        Some(Action::Send { frame, payload })
    }

    /// What goes out when no message does.
    fn last_words(&mut self) -> Option<(Frame, Option<P>)> {
        let kind = if self.own_end == OwnEnd::Due {
            self.own_end = OwnEnd::Said;
            Kind::End
        } else if self.owed >= self.own.credits.div_ceil(2) {
            Kind::Credit
        } else {
            return None;
        };
        Some((Frame::control(kind, self.next), None))
    }

    fn next_read(&mut self) -> Option<Action<P>> {
        if let TrialRead::Offered(remote, length) = self.trial_read {
            self.trial_read = TrialRead::Reading;
            let id = ReadId::Trial;
            return Some(Action::Read { id, remote, length });
        }
        if self.to_read == 0 {
            return None;
        }
        let index = self
            .inbox
            .iter()
            .position(|slot| matches!(slot, Slot::Offered { .. }))?;
        let slot = &mut self.inbox[index];
        let Slot::Offered { remote, length } = *slot else {
            return None;
        };
        if index > 0 && self.read_bytes.saturating_add(length) > self.read_ahead {
            return None;
        }
        *slot = Slot::Reading { length };
        self.to_read -= 1;
        self.read_bytes = self.read_bytes.saturating_add(length);
        let id = ReadId::Message(self.first.wrapping_add(index as u32));
        Some(Action::Read { id, remote, length })
    }

    /// The frame that was posted first has completed.
    pub fn sent(&mut self) {
        self.posted.pop_front();
    }

    /// The same on a wire where a SEND completes when the peer's NIC has it: if it was the end, the end has arrived. A
    /// peer that takes the end may leave at once, and then nothing answers [`Action::Confirm`].
    pub fn delivered(&mut self) {
        if self.posted.pop_front() == Some(Kind::End) {
            self.own_end = OwnEnd::Arrived;
        }
    }

    /// [`Action::Confirm`] has completed.
    pub fn confirmed(&mut self) {
        if self.own_end == OwnEnd::Asked {
            self.own_end = OwnEnd::Arrived;
        }
    }

    /// A READ has completed, and here is what it read.
    pub fn read_done(&mut self, id: ReadId, message: Q) {
        let sequence = match id {
            ReadId::Trial => {
                self.trial_read = TrialRead::None;
                self.owed += 1;
                self.control.push_back(Frame::control(Kind::TrialDone, 0));
                return;
            }
            ReadId::Message(sequence) => sequence,
        };
        let index = sequence.wrapping_sub(self.first) as usize;
        let Some(slot @ Slot::Reading { .. }) = self.inbox.get_mut(index) else {
            return;
        };
        let Slot::Reading { length: counted } = *slot else {
            return;
        };
        *slot = Slot::Ready { message, counted };
        self.unread -= 1;
        self.control.push_back(Frame::control(Kind::Finish, sequence));
    }

    /// Takes the next message.
    pub fn take(&mut self) -> Taken<Q> {
        match self.inbox.front() {
            Some(Slot::Ready { .. }) => {}
            Some(_) if self.closed => return Taken::Lost,
            Some(_) => return Taken::Nothing,
            None if self.peer_ended => return Taken::End,
            None if self.closed => return Taken::Lost,
            None => return Taken::Nothing,
        }
        let Some(Slot::Ready { message, counted }) = self.inbox.pop_front() else {
            return Taken::Nothing;
        };
        self.first = self.first.wrapping_add(1);
        self.read_bytes -= counted;
        self.owed += 1;
        Taken::Message(message)
    }

    /// A frame of the peer's; `payload` is asked for what follows the header of a message.
    pub fn receive(&mut self, frame: &Frame, payload: impl FnOnce() -> Q) -> Result<(), Violation> {
        if self.heard == (frame.kind == Kind::Hello) {
            return Err(Violation::Hello);
        }
        self.heard = true;
        self.may_send = true;
        self.add_credits(frame.credits)?;
        match frame.kind {
            Kind::Hello | Kind::Credit => {}
            Kind::Message | Kind::Offer => self.receive_message(frame, payload)?,
            Kind::Finish => self.finish(frame.sequence)?,
            Kind::End => {
                if self.peer_ended || frame.sequence != self.expected() {
                    return Err(Violation::OutOfOrder);
                }
                self.peer_ended = true;
            }
            Kind::Trial | Kind::TrialOffer => self.receive_trial(frame)?,
            Kind::TrialDone => {
                self.trial.take().ok_or(Violation::Unasked)?;
            }
            Kind::Cutoff => {
                self.set_cutoff(frame.length);
                self.cutoff_told = true;
            }
        }
        Ok(())
    }

    fn add_credits(&mut self, returned: u16) -> Result<(), Violation> {
        self.credits = self
            .credits
            .checked_add(returned)
            .filter(|credits| *credits <= self.peer.credits)
            .ok_or(Violation::CreditsInvented)?;
        Ok(())
    }

    /// The number of the message that comes next.
    fn expected(&self) -> u32 {
        self.first.wrapping_add(self.inbox.len() as u32)
    }

    /// Whether the peer can have had a credit for one more: it has none back for those that wait here or are owed.
    fn has_room(&self) -> bool {
        let reading = usize::from(self.trial_read != TrialRead::None);
        self.inbox.len() + usize::from(self.owed) + reading < usize::from(self.own.credits)
    }

    fn receive_message(&mut self, frame: &Frame, payload: impl FnOnce() -> Q) -> Result<(), Violation> {
        if self.peer_ended {
            return Err(Violation::AfterEnd);
        }
        if frame.sequence != self.expected() {
            return Err(Violation::OutOfOrder);
        }
        if !self.has_room() {
            return Err(Violation::WithoutCredit);
        }
        if frame.length > self.own.message_bytes {
            return Err(Violation::TooLong);
        }
        let slot = match frame.remote {
            None => Slot::Ready {
                message: payload(),
                counted: 0,
            },
            Some(remote) => {
                if self.unread >= OFFERS {
                    return Err(Violation::TooManyOffers);
                }
                self.to_read += 1;
                self.unread += 1;
                let length = frame.length;
                Slot::Offered { remote, length }
            }
        };
        self.inbox.push_back(slot);
        Ok(())
    }

    fn finish(&mut self, sequence: u32) -> Result<(), Violation> {
        let open = self.offers.iter().position(|(offered, _)| *offered == sequence);
        let index = open.ok_or(Violation::Unasked)?;
        self.offers.remove(index);
        Ok(())
    }

    fn receive_trial(&mut self, frame: &Frame) -> Result<(), Violation> {
        if !self.has_room() {
            return Err(Violation::WithoutCredit);
        }
        match frame.remote {
            None => {
                self.owed += 1;
                self.control.push_back(Frame::control(Kind::TrialDone, 0));
            }
            Some(_) if frame.length > u64::from(self.own.frame_bytes) => return Err(Violation::TooLong),
            Some(_) if self.trial_read != TrialRead::None => return Err(Violation::TooManyOffers),
            Some(remote) => self.trial_read = TrialRead::Offered(remote, frame.length),
        }
        Ok(())
    }
}
