//! One run: what is measured, with what parameters, as both sides know it.
//!
//! The client decides and tells the server in one line ([`Run::to_message`]); the server believes nothing it
//! cannot afford ([`Run::check`]).

use crate::exchange::Message;
use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use nonic::{AckTimeout, PathMtu};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The most registered memory a run may take on one side.
const MAX_RUN_BYTES: u64 = 1 << 30;
/// How much of a queue's buffers is worth having in flight.
const USEFUL_BYTES: u64 = 1 << 20;
/// An unreliable sender gets no further ahead of its receiver than this: what a socket buffer holds.
const UNRELIABLE_WINDOW_BYTES: u64 = 256 << 10;

/// Receives for the peer's small messages about how far it got.
pub(crate) const CREDIT_RECEIVES: u64 = 64;

/// What to measure.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Test {
    /// Bytes per second, with the queue kept full
    Bw,
    /// Time of one message: half a round trip for send and write, a whole one for read and atomics
    Lat,
    /// Messages per second: small messages, with the queue kept full
    Rate,
}

/// The service of a queue pair.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Service {
    /// Reliable connected
    Rc,
    /// Unreliable connected
    Uc,
    /// Unreliable datagram
    Ud,
}

/// What is posted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
    /// SEND into a posted receive
    Send,
    /// RDMA WRITE (unreliable: with immediate, so that arrivals can be counted)
    Write,
    /// RDMA READ
    Read,
    /// Atomic fetch-and-add of an 8-byte word
    FetchAdd,
    /// Atomic compare-and-swap of an 8-byte word
    CompareSwap,
}

impl Op {
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Op::FetchAdd | Op::CompareSwap)
    }

    /// Whether it names the peer's memory.
    pub(crate) fn is_one_sided(self) -> bool {
        self != Op::Send
    }

    /// Whether its answer carries data.
    pub(crate) fn fetches(self) -> bool {
        self == Op::Read || self.is_atomic()
    }
}

/// The parameters of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) test: Test,
    pub(crate) service: Service,
    pub(crate) op: Op,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Requests in a send queue at a time.
    pub(crate) depth: u32,
    pub(crate) qps: u32,
    pub(crate) mtu: PathMtu,
    /// How long a reliable queue pair waits for an acknowledgement before it repeats.
    pub(crate) ack_timeout: AckTimeout,
    /// Both sides sleep while they wait.
    pub(crate) events: bool,
    /// The target's program sleeps during one-sided bandwidth runs; its NIC is served in the background.
    pub(crate) target_sleeps: bool,
    pub(crate) verify: bool,
}

impl Run {
    /// Whether the combination exists and both sides can afford it.
    pub(crate) fn check(&self) -> Result<()> {
        let Run {
            service, op, size, ..
        } = *self;
        ensure!(
            size > 0,
            "messages of zero bytes carry nothing to measure; use --size 1 or more"
        );
        ensure!(
            service == Service::Rc || !op.fetches(),
            "{} exists on RC only: the unreliable services have no answers; use --service rc",
            name(op)
        );
        ensure!(
            service != Service::Ud || op == Op::Send,
            "UD knows only send: a datagram cannot name the peer's memory; use --op send or --service rc"
        );
        ensure!(
            service != Service::Ud || size <= self.mtu.bytes(),
            "a datagram carries at most the path MTU, {} bytes here; use --size {} or less",
            self.mtu.bytes(),
            self.mtu.bytes()
        );
        ensure!(
            !op.is_atomic() || size == 8,
            "atomics work on words of 8 bytes; leave --size away"
        );
        ensure!(
            (1..=8192).contains(&self.depth),
            "the queue depth must be 1 to 8192"
        );
        ensure!((1..=1024).contains(&self.qps), "between 1 and 1024 queue pairs");
        ensure!(
            self.test != Test::Lat || self.qps == 1,
            "latency is measured on one queue pair; leave --qps away"
        );
        let bytes = u64::from(self.qps) * (self.sends().max(self.receives()) * self.stride());
        if bytes > MAX_RUN_BYTES {
            bail!(
                "this needs {} MiB of buffers; use a smaller --size, --qps or --queue-depth",
                bytes >> 20
            );
        }
        Ok(())
    }

    /// The queue depth that suits a test of messages of this size.
    pub(crate) fn default_depth(test: Test, size: u32) -> u32 {
        match test {
            Test::Lat => 1,
            Test::Bw => (USEFUL_BYTES / u64::from(size.max(1))).clamp(16, 128) as u32,
            Test::Rate => 128,
        }
    }

    /// Whether the receiving program learns of each message: by a receive completion.
    pub(crate) fn arrives_visibly(&self) -> bool {
        match self.op {
            Op::Send => true,
            Op::Write => self.counted(),
            _ => false,
        }
    }

    /// Whether messages carry their number as immediate data: where one can get lost, and where a WRITE must
    /// wake its receiver.
    pub(crate) fn counted(&self) -> bool {
        self.service != Service::Rc || (self.op == Op::Write && self.test == Test::Lat && self.events)
    }

    /// Whether a message shows in its receiver's memory only.
    pub(crate) fn polls_memory(&self) -> bool {
        self.test == Test::Lat && self.op == Op::Write && !self.events
    }

    /// Buffers to send from, per queue pair.
    pub(crate) fn sends(&self) -> u64 {
        match self.test {
            // One under way, one whose acknowledgement is late, and a little more.
            Test::Lat => 4,
            _ => u64::from(self.depth),
        }
    }

    /// Receives to have posted, per queue pair. A receiver that is late must still have some.
    pub(crate) fn receives(&self) -> u64 {
        match self.test {
            Test::Lat => 8,
            _ => (4 * u64::from(self.depth))
                .min((64 << 20) / self.stride())
                .max(16),
        }
    }

    /// How far, in messages, an unreliable sender may be ahead of the last it knows to have arrived. Never
    /// more than there are receives.
    pub(crate) fn window(&self) -> u64 {
        let fitting = UNRELIABLE_WINDOW_BYTES / u64::from(self.size) / u64::from(self.qps);
        fitting.clamp(2, self.receives())
    }

    /// Bytes from one slot of the target's memory to the next.
    pub(crate) fn stride(&self) -> u64 {
        u64::from(self.size).next_multiple_of(64)
    }

    /// Slots of the target's memory that a queue pair uses in turn.
    pub(crate) fn slots(&self) -> u64 {
        match self.test {
            Test::Lat => 1,
            _ if self.op.is_atomic() => 1,
            // None is written again before its receiver has seen it.
            _ if self.counted() => self.receives(),
            _ => u64::from(self.depth),
        }
    }

    pub(crate) fn to_message(&self) -> Message {
        Message::new("run")
            .with("test", name(self.test))
            .with("service", name(self.service))
            .with("op", name(self.op))
            .with("size", self.size)
            .with("depth", self.depth)
            .with("qps", self.qps)
            .with("mtu", self.mtu.bytes())
            .with("ack-timeout", self.ack_timeout.exponent())
            .with("events", self.events)
            .with("target-sleeps", self.target_sleeps)
            .with("verify", self.verify)
    }

    pub(crate) fn from_message(message: &Message) -> Result<Self> {
        let mtu: u32 = message.field("mtu")?;
        let Some(mtu) = PathMtu::from_bytes(mtu) else {
            bail!("the peer wants a path MTU of {mtu} bytes, which is none");
        };
        let exponent: u8 = message.field("ack-timeout")?;
        let Some(ack_timeout) = AckTimeout::from_exponent(exponent) else {
            bail!("the peer wants an acknowledgement timeout of 2^{exponent}, which is none");
        };
        let run = Run {
            test: message.field::<Name<Test>>("test")?.0,
            service: message.field::<Name<Service>>("service")?.0,
            op: message.field::<Name<Op>>("op")?.0,
            size: message.field("size")?,
            depth: message.field("depth")?,
            qps: message.field("qps")?,
            mtu,
            ack_timeout,
            events: message.field("events")?,
            target_sleeps: message.field("target-sleeps")?,
            verify: message.field("verify")?,
        };
        run.check()?;
        Ok(run)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = crate::units::Size(self.size.into());
        write!(
            f,
            "{} {} {} of {size}",
            name(self.service),
            name(self.op),
            name(self.test)
        )
    }
}

/// A value's name on the command line and in the conversation.
pub(crate) fn name(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Reads such a name.
struct Name<T>(T);

impl<T: ValueEnum> FromStr for Name<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        T::from_str(text, false).map(Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(service: Service, op: Op) -> Run {
        Run {
            test: Test::Bw,
            service,
            op,
            size: 8,
            depth: 16,
            qps: 2,
            mtu: PathMtu::Mtu1024,
            ack_timeout: AckTimeout::INFINITE,
            events: true,
            target_sleeps: false,
            verify: true,
        }
    }

    #[test]
    fn a_run_survives_the_conversation() {
        for op in Op::value_variants() {
            let run = run(Service::Rc, *op);
            let line = run.to_message().to_string();
            let read = Run::from_message(&line.parse().expect("well formed")).expect("legal");
            assert_eq!(read, run);
        }
    }

    #[test]
    fn what_a_service_lacks_is_refused() {
        let legal = [
            (Service::Rc, Op::Send),
            (Service::Rc, Op::Write),
            (Service::Rc, Op::Read),
            (Service::Rc, Op::FetchAdd),
            (Service::Rc, Op::CompareSwap),
            (Service::Uc, Op::Send),
            (Service::Uc, Op::Write),
            (Service::Ud, Op::Send),
        ];
        for service in Service::value_variants() {
            for op in Op::value_variants() {
                let expected = legal.contains(&(*service, *op));
                assert_eq!(run(*service, *op).check().is_ok(), expected, "{service:?} {op:?}");
            }
        }
    }

    #[test]
    fn a_peer_cannot_ask_for_more_than_there_is() {
        let absurd = [
            Run {
                size: 0,
                ..run(Service::Rc, Op::Send)
            },
            Run {
                size: u32::MAX,
                ..run(Service::Rc, Op::Send)
            },
            Run {
                depth: 0,
                ..run(Service::Rc, Op::Send)
            },
            Run {
                qps: 1025,
                ..run(Service::Rc, Op::Send)
            },
            Run {
                qps: 1024,
                depth: 8192,
                size: 4096,
                ..run(Service::Rc, Op::Send)
            },
            Run {
                size: 1025,
                ..run(Service::Ud, Op::Send)
            },
            Run {
                size: 16,
                ..run(Service::Rc, Op::FetchAdd)
            },
        ];
        for run in absurd {
            assert!(run.check().is_err(), "{run:?}");
            assert!(Run::from_message(&run.to_message()).is_err(), "{run:?}");
        }
    }
}
