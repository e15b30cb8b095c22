//! Faults that were asked for (`NONIC_FAULTS`), on real sockets.

use super::{LONG, PATIENCE, Program};
use crate::config::Config;
use crate::memory::Pages;
use crate::testing::exposed;
use nonic_core::{Data, Event, KeyError, Qpn, RecvRequest, SendFlags, SendOp, SendRequest, Sge, Status};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// About 67 ms: the time in which three tries end.
const MEDIUM: u8 = 14;

impl Program {
    fn disturbed(faults: &str) -> Self {
        Self::with(&Config {
            faults: Some(faults.parse().expect("well formed")),
            ..Config::default()
        })
    }

    fn receive(&self, qpn: Qpn) {
        let sge = Sge {
            addr: 0,
            length: 64,
            lkey: self.key,
        };
        let request = RecvRequest {
            wr_id: 2,
            sges: &[sge],
        };
        self.device.post_recv(qpn, &request).expect("posted");
    }

    fn send(&self, qpn: Qpn) {
        let request = SendRequest {
            wr_id: 1,
            op: SendOp::Send,
            data: Data::Inline(b"hello"),
            flags: SendFlags::SIGNALED,
            destination: None,
        };
        self.device.post_send(qpn, &request).expect("posted");
    }
}

#[test]
fn each_tenth_write_is_lost_and_comes_again() {
    let program = Program::disturbed("loss=100%,kind=write,every=10");
    let (from, _) = program.pair(LONG);
    for _ in 0..90 {
        program.write(from, 64);
        assert_eq!(program.wait().status, Status::Success);
    }
    let (_, link) = program.device.counters();
    // Those that come again are counted as well. A machine that is busy may send more of them than are needed.
    assert!((9..=12).contains(&link.faults_lost), "{}", link.faults_lost);
}

#[test]
fn a_limit_is_kept() {
    let program = Program::disturbed("loss=100%,kind=ack,limit=1");
    let (from, _) = program.pair(LONG);
    for _ in 0..20 {
        program.write(from, 64);
        assert_eq!(program.wait().status, Status::Success);
    }
    assert_eq!(program.device.counters().1.faults_lost, 1);
}

#[test]
fn acknowledgements_that_leave_late_make_requests_slow() {
    let program = Program::disturbed("delay=20ms,kind=ack,direction=out");
    let (from, _) = program.pair(LONG);
    for _ in 0..3 {
        let start = Instant::now();
        program.write(from, 64);
        assert_eq!(program.wait().status, Status::Success);
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
    assert!(program.device.counters().1.faults_held >= 3);
}

#[test]
fn a_partition_ends() {
    let program = Program::disturbed("loss=100%,until=100ms");
    let (from, _) = program.pair(MEDIUM + 2);
    let start = Instant::now();
    program.write(from, 64);
    assert_eq!(program.wait().status, Status::Success);
    assert!(start.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_partition_that_lasts_is_an_error() {
    let program = Program::disturbed("loss=100%");
    let (from, _) = program.pair(MEDIUM - 4);
    program.write(from, 64);
    assert_eq!(program.wait().status, Status::RetryExceeded);
}

/// No checksum catches it: that is what it is for.
#[test]
fn what_is_garbled_is_taken() {
    let program = Program::disturbed("garble=100%,kind=write,limit=1");
    let (from, _) = program.pair(LONG);
    program.write(from, 64);
    assert_eq!(program.wait().status, Status::Success);
    let (nic, link) = program.device.counters();
    assert_eq!(link.faults_garbled, 1);
    assert_eq!(nic.rx_icrc_errors, 0);
}

#[test]
fn receives_that_are_not_found_cost_time_and_nothing_else() {
    let program = Program::disturbed("rnr=1/5");
    let (from, to) = program.pair(LONG);
    for _ in 0..20 {
        program.receive(to);
        program.send(from);
        // One for each side.
        for _ in 0..2 {
            assert_eq!(program.wait().status, Status::Success);
        }
    }
    let hidden: u64 = program
        .device
        .inner
        .drivers
        .iter()
        .map(|driver| driver.turn().nic.hidden_receives())
        .sum();
    assert!((4..=8).contains(&hidden), "{hidden}");
}

#[test]
fn registrations_fail_as_if_there_were_no_key_left() {
    // The program has registered once.
    let program = Program::disturbed("registration=1/3");
    let register = || {
        let region = Arc::new(Pages::new(4096).expect("memory"));
        program
            .device
            .register(exposed(program.pd, region, 4096))
            .map(drop)
    };
    assert_eq!(register(), Ok(()));
    assert_eq!(register(), Err(KeyError::Exhausted));
    assert_eq!(register(), Ok(()));
}

#[test]
fn a_completion_queue_overflows_that_was_made_smaller_than_asked() {
    let program = Program::disturbed("cq=4");
    let (from, _) = program.pair(LONG);
    for _ in 0..8 {
        program.write(from, 64);
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        program.device.progress();
        if program
            .device
            .events()
            .pop()
            .is_some_and(|event| event == Event::CqError(program.cq.id()))
        {
            return;
        }
    }
    panic!("no overflow of a queue with four places after eight completions");
}

#[test]
fn a_device_fails_when_it_is_told_to() {
    // Nothing else is done to it: a machine that stands still for a moment must not find it failed already.
    let program = Program::disturbed("fatal=50ms");
    let event = program.device.events().wait(Some(PATIENCE)).expect("a channel");
    assert_eq!(event, Some(Event::DeviceFatal));
}
