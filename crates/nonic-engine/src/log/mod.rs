//! Logging: `tracing` events for the program's subscriber, or standard error by `NONIC_LOG`.
//!
//! By default nothing is logged but what no user should miss ([`tell_always`]: a device that cannot be opened, or to which
//! nothing can come). A disabled event costs one relaxed load. A packet that is as it should be is never logged: of queue
//! pairs, the events are those that the core records ([`nonic_core::record`]). Without the feature `tracing` all of this is
//! nothing but [`tell_always`].
//!
//! Targets are `nonic::` and a part: `device`, `qp`, `cm`, `memory`, `direct`, `verbs`, `inspect`, `request`. `warn` is a
//! failure with its explanation, `info` a change of state or a connection, `debug` a packet out of the ordinary and how
//! long connecting took, `trace` how long each request of the Rust API took. The last two are spans, which the crate
//! `nonic` has.

#[cfg(feature = "tracing")]
mod fields;
#[cfg(feature = "tracing")]
mod filter;
#[cfg(feature = "tracing")]
mod open_spans;
mod repeated;
#[cfg(feature = "tracing")]
mod standard_error;

use nonic_core::cm::CmEvent;
use nonic_core::record::{QpEvent, Recorded};
use nonic_core::{Nic, PostError, QpState, Qpn};
use nonic_explain::Explanation;
use nonic_settings::{Environment, SettingError};
use repeated::{Admission, Repeated};
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

/// Logs an event: `tell!(WARN, "nonic::qp", "queue pair {qpn}: …")`.
macro_rules! tell {
    ($level:ident, $target:literal, $($message:tt)+) => {{
        #[cfg(feature = "tracing")]
        tracing::event!(target: $target, tracing::Level::$level, $($message)+);
        #[cfg(not(feature = "tracing"))]
        let _ = || { let _ = format_args!($($message)+); };
    }};
}
pub(crate) use tell;

/// Does as `NONIC_LOG` says, once for the process: writes to standard error what the filter lets through. A program that
/// has a subscriber of its own keeps it.
pub(crate) fn install(environment: &Environment) -> Result<(), SettingError> {
    #[cfg(feature = "tracing")]
    if let Some(setting) = environment.text(&nonic_settings::LOG) {
        let filter = filter::Filter::from_setting(setting)?;
        IS_SILENT.store(
            filter.most() == tracing::level_filters::LevelFilter::OFF,
            Ordering::Relaxed,
        );
        // Only the first can be set, which may be the program's.
        let set = tracing::subscriber::set_global_default(standard_error::StandardError::new(filter));
        IS_OURS.fetch_or(set.is_ok(), Ordering::Relaxed);
    }
    #[cfg(not(feature = "tracing"))]
    let _ = environment;
    Ok(())
}

/// Whether the subscriber is ours, which writes to standard error.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Whether `NONIC_LOG` says `off`.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// What the C libraries refused lately.
static REPEATED: Mutex<Repeated> = Mutex::new(Repeated::new());

/// Does as `NONIC_LOG` says, if it was not read yet: a call can be refused before a device is looked for. Opening a device
/// fails for a setting that cannot be understood.
fn read_setting() {
    static READ: Once = Once::new();
    READ.call_once(|| {
        let _ = Environment::read().and_then(|environment| install(&environment));
    });
}

/// Whether a subscriber takes events of this severity.
fn is_told(severity: Severity) -> bool {
    #[cfg(feature = "tracing")]
    return match severity {
        Severity::Error => tracing::enabled!(target: "nonic::device", tracing::Level::ERROR),
        Severity::Warning => tracing::enabled!(target: "nonic::device", tracing::Level::WARN),
    };
    #[cfg(not(feature = "tracing"))]
    {
        let _ = severity;
        false
    }
}

/// Whether the program has a subscriber of its own.
fn is_the_programs() -> bool {
    anybody_listens() && !IS_OURS.load(Ordering::Relaxed)
}

/// Logs what the NIC has recorded since it was asked last.
#[cold]
pub(crate) fn tell_recorded(nic: &mut Nic) {
    while let Some((qpn, recorded)) = nic.poll_recorded() {
        if anybody_listens() {
            tell_event(nic, qpn, &recorded);
        }
    }
}

/// Whether a subscriber takes any event at all: one relaxed load.
fn anybody_listens() -> bool {
    #[cfg(feature = "tracing")]
    return tracing::level_filters::LevelFilter::current() != tracing::level_filters::LevelFilter::OFF;
    #[cfg(not(feature = "tracing"))]
    false
}

fn tell_event(nic: &Nic, qpn: Qpn, recorded: &Recorded) {
    let Recorded { event, times, .. } = recorded;
    let qpn = qpn.value();
    match event {
        QpEvent::Moved(QpState::Error | QpState::Sqe) => {
            tell!(INFO, "nonic::qp", "queue pair {qpn:#08x} {event}");
            let explanation = Explanation::of_queue_pair(nic, Qpn::new(qpn), None);
            if let Some(explanation) = explanation.filter(|_| is_first_failure(nic, Qpn::new(qpn), event)) {
                tell!(WARN, "nonic::qp", "queue pair {qpn:#08x} failed. {explanation}");
            }
        }
        QpEvent::Moved(_) => tell!(INFO, "nonic::qp", "queue pair {qpn:#08x} {event}"),
        // A sender that does not know better may go on for long.
        QpEvent::Dropped(..) if times.is_power_of_two() => {
            if let Some(explanation) = Explanation::of_queue_pair(nic, Qpn::new(qpn), None) {
                tell!(
                    WARN,
                    "nonic::qp",
                    "queue pair {qpn:#08x}, {times} times. {explanation}"
                );
            }
        }
        // It goes on for ever, as it was asked to, and to the program looks like a hang.
        QpEvent::PeerNotReady { retries_left: None } if *times >= PATIENT && times.is_power_of_two() => {
            tell!(
                WARN,
                "nonic::qp",
                "queue pair {qpn:#08x}: the peer has had no receive {times} times, and is asked for ever since rnr_retry is 7. \
                 Have the peer post a receive for each message, before it comes; or set rnr_retry below 7, and the request fails instead"
            );
        }
        _ => tell!(DEBUG, "nonic::qp", "queue pair {qpn:#08x}: {event}"),
    }
}

/// So often a peer may have no receive before it is logged: about a second, if it asks for as much time as connections of
/// ours do.
const PATIENT: u32 = 64;

/// Whether the failure of a queue pair that goes to the error state has not been logged before. One of iWARP passes SQE on
/// its way there, while its Terminate is sent.
fn is_first_failure(nic: &Nic, qpn: Qpn, event: &QpEvent) -> bool {
    let recorded = nic.recorded(qpn).map(|recorded| &recorded.event);
    let mut lately = recorded
        .rev()
        .take_while(|event| **event != QpEvent::Moved(QpState::Rts));
    *event == QpEvent::Moved(QpState::Sqe) || !lately.any(|event| *event == QpEvent::Moved(QpState::Sqe))
}

/// Logs what became of a connection.
pub(crate) fn tell_connection(event: &CmEvent) {
    match event {
        CmEvent::Request(request) => {
            let peer = request.route.remote;
            tell!(INFO, "nonic::cm", "{peer} wants to connect");
        }
        CmEvent::Response(response) => {
            let id = response.connection.0;
            tell!(INFO, "nonic::cm", "connection {id:#010x}: accepted by the peer");
        }
        CmEvent::Established { connection, .. } => {
            tell!(
                INFO,
                "nonic::cm",
                "connection {:#010x}: established",
                connection.0
            );
        }
        CmEvent::Rejected {
            connection, reason, ..
        } => {
            let explanation = Explanation::of_rejection(reason.0);
            tell!(
                WARN,
                "nonic::cm",
                "connection {:#010x}: {explanation}",
                connection.0
            );
        }
        CmEvent::Unreachable { connection, .. } => {
            let explanation = Explanation::of_unreachable();
            tell!(
                WARN,
                "nonic::cm",
                "connection {:#010x}: {explanation}",
                connection.0
            );
        }
        CmEvent::Disconnected {
            connection, cause, ..
        } => tell!(
            INFO,
            "nonic::cm",
            "connection {:#010x} is over: {cause}",
            connection.0
        ),
        _ => {}
    }
}

/// Logs why a call of the C libraries was refused, of which the program sees an errno.
pub fn refused_call(call: &str, errno: &str, what: &str, next: &str) {
    read_setting();
    if !anybody_listens() {
        return;
    }
    let line = format!("{call} was refused with {errno}: {what}. Try: {next}");
    let admission = {
        let mut repeated = REPEATED.lock().unwrap_or_else(PoisonError::into_inner);
        repeated.admit(&line, Instant::now())
    };
    match admission {
        Admission::First => tell!(WARN, "nonic::verbs", "{line}"),
        Admission::Again { times } => tell!(
            WARN,
            "nonic::verbs",
            "{line} ({times} times since it was told last)"
        ),
        Admission::TooSoon => {}
    }
}

/// Logs that a request was not taken because the queue is full, which is how programs find out when to take completions.
pub fn full_queue(error: PostError) {
    tell!(DEBUG, "nonic::verbs", "{}", Explanation::of_post(error));
}

/// Logs what a user must know whether or not a log was asked for, once per process: to the subscriber, or else on standard
/// error. `NONIC_LOG=off` silences it, and so does a program that has a subscriber of its own and does not want it.
pub fn tell_always(severity: Severity, what: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    read_setting();
    let is_new = TOLD
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(what.to_owned());
    if !is_new {
        return;
    }
    match severity {
        Severity::Error => tell!(ERROR, "nonic::device", "{what}"),
        Severity::Warning => tell!(WARN, "nonic::device", "{what}"),
    }
    if IS_SILENT.load(Ordering::Relaxed) || is_told(severity) || is_the_programs() {
        return;
    }
    let level = match severity {
        Severity::Error => "error",
        Severity::Warning => "warn",
    };
    let line = format!("nonic[{}] {level} device: {what}\n", std::process::id());
    // In one piece, so that lines of several processes are not mixed. Whether standard error is read is not our business.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Logs that the file of `NONIC_COUNTERS` cannot be written.
pub(crate) fn counters_unwritten(file: &Path, error: &io::Error) {
    let what = format!(
        "NONIC_COUNTERS={}: the counters are not written: {error}",
        file.display()
    );
    tell_always(Severity::Warning, &what);
}

/// How bad something is that is always logged.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Severity {
    /// A device cannot be opened.
    Error,
    /// A device works in part only.
    Warning,
}
