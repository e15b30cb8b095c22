//! The settings of a socket, by the program or the administrator.
//!
//! Defaults are rdma-core's but for the buffers and the polling time, and its files under `/etc/rdma/rsocket` change them: each holds one number.

use super::patience::PollingTime;
use super::protocol::{LOW_WATER, Sizes};
use super::wait_limit::WaitLimit;
use std::sync::OnceLock;
use std::time::Duration;

const FOLDER: &str = "/etc/rdma/rsocket";

/// Queues are at least this long, and at most as long as sequence numbers allow.
const MIN_QUEUE: u16 = 16;
const MAX_QUEUE: u16 = 0xfffe;

/// Buffers are at most this large: a program's mistake must not take all memory.
const MAX_BUFFER: u32 = 1 << 30;
/// What a socket sends from and receives into, unless the administrator or the program says otherwise. The ring is given away in
/// halves. With rdma-core's 128 KiB, iperf3 between two hosts carries a quarter less.
const BUFFER: u32 = 1 << 18;

/// How long a program that closes waits for what it has sent, if it does not say.
pub(crate) const LINGER: Duration = Duration::from_secs(60);

/// How long a waiting call lets its peer be silent, unless the program sets it. A process that was killed cannot
/// disconnect, so the waiting side has to probe.
const SILENCE: Duration = Duration::from_secs(10);

/// The settings of a socket. An accepted one has those of its listener.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) send_queue: u16,
    pub(crate) receive_queue: u16,
    pub(crate) send_buffer: u32,
    pub(crate) receive_buffer: u32,
    /// Messages up to this size are copied into the work request.
    pub(crate) inline: u16,
    /// How many buffers the peer may map for us to write to.
    pub(crate) iomap_size: u16,
    /// As `fcntl` has them.
    pub(crate) file_flags: libc::c_int,
    pub(crate) descriptor_flags: libc::c_int,
    pub(crate) receive_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    /// `SO_LINGER`; `None` if it was not set.
    pub(crate) linger: Option<Duration>,
    pub(crate) keepalive: bool,
    /// Seconds of silence before a peer is asked whether it is alive.
    pub(crate) keepalive_idle_s: u32,
    pub(crate) reuse_address: bool,
    pub(crate) out_of_band_inline: bool,
    pub(crate) no_delay: bool,
    pub(crate) own_family_only: bool,
    pub(crate) type_of_service: libc::c_int,
}

impl Settings {
    pub(crate) fn new() -> Self {
        let defaults = Defaults::read();
        Settings {
            send_queue: defaults.send_queue,
            receive_queue: defaults.receive_queue,
            send_buffer: defaults.send_buffer,
            receive_buffer: defaults.receive_buffer,
            inline: defaults.inline,
            iomap_size: defaults.iomap_size,
            file_flags: 0,
            descriptor_flags: 0,
            receive_timeout: None,
            send_timeout: None,
            linger: None,
            keepalive: false,
            keepalive_idle_s: 7200,
            reuse_address: false,
            out_of_band_inline: false,
            no_delay: false,
            own_family_only: false,
            type_of_service: 0,
        }
    }

    fn is_nonblocking(&self, flags: libc::c_int) -> bool {
        self.file_flags & libc::O_NONBLOCK != 0 || flags & libc::MSG_DONTWAIT != 0
    }

    pub(crate) fn send_limit(&self, flags: libc::c_int) -> WaitLimit {
        WaitLimit::new(!self.is_nonblocking(flags), self.send_timeout)
    }

    pub(crate) fn receive_limit(&self, flags: libc::c_int) -> WaitLimit {
        WaitLimit::new(!self.is_nonblocking(flags), self.receive_timeout)
    }

    /// How long a peer may be silent while a call waits for it.
    pub(crate) fn silence(&self) -> Duration {
        match self.keepalive {
            true => Duration::from_secs(self.keepalive_idle_s.into()),
            false => SILENCE,
        }
    }

    /// As a stream will have them.
    pub(crate) fn stream_sizes(&self) -> Sizes {
        Sizes {
            send_queue: self.send_queue.clamp(MIN_QUEUE, MAX_QUEUE),
            receive_queue: self.receive_queue.clamp(MIN_QUEUE, MAX_QUEUE),
            send_buffer: self.send_buffer.clamp(2 * LOW_WATER, MAX_BUFFER),
            // The ring is given away in halves.
            receive_buffer: self.receive_buffer.clamp(2, MAX_BUFFER) & !1,
        }
    }
}

impl Settings {
    /// How many messages of a length a datagram socket's queues hold: to send, and to receive.
    pub(crate) fn datagram_queues(&self, length: usize) -> (u16, u16) {
        let slots = |queue: u16, buffer: u32| {
            let fits = (buffer as usize / length).clamp(1, usize::from(MAX_QUEUE));
            queue.clamp(1, fits as u16)
        };
        (
            slots(self.send_queue, self.send_buffer),
            slots(self.receive_queue, self.receive_buffer),
        )
    }
}

/// The administrator's part.
pub(crate) struct Defaults {
    send_queue: u16,
    receive_queue: u16,
    send_buffer: u32,
    receive_buffer: u32,
    inline: u16,
    iomap_size: u16,
    /// How long to look for completions before going to sleep.
    pub(crate) polling_time: PollingTime,
}

impl Defaults {
    /// Read once.
    pub(crate) fn read() -> &'static Defaults {
        static DEFAULTS: OnceLock<Defaults> = OnceLock::new();
        DEFAULTS.get_or_init(|| {
            let short = |name: &str, default: u16| {
                number(name).map_or(default, |value| value.min(u64::from(MAX_QUEUE)) as u16)
            };
            let long = |name: &str, default: u32| {
                number(name).map_or(default, |value| value.min(u64::from(MAX_BUFFER)) as u32)
            };
            let polling_time = number("polling_time").map(Duration::from_micros);
            Defaults {
                send_queue: short("sqsize_default", 384),
                receive_queue: short("rqsize_default", 384),
                send_buffer: long("wmem_default", BUFFER),
                receive_buffer: long("mem_default", BUFFER),
                inline: short("inline_default", 64),
                iomap_size: short("iomap_size", 0),
                polling_time: polling_time.map_or(PollingTime::Learned, PollingTime::Fixed),
            }
        })
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("{FOLDER}/{name}")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}
