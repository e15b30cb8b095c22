//! The cut-off between frames and READs: measured, shown, told to the other side, remembered.

use crate::common;
use crate::common::{PATIENCE, WIRES, loopback, node, options, pair};
use nonic_message::{CutoffSource, Options};

#[test]
fn it_is_measured_when_connecting_and_told_to_the_other_side() {
    for wire in WIRES {
        let node = node(wire, Options::default());
        let listener = node.listen(loopback()).expect("a port");
        let [connected, accepted] = std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let accepted = listener.accept().wait_within(PATIENCE).expect("in time");
                let mut channel = accepted.expect("accepted");
                let message = channel.recv().wait_within(PATIENCE).expect("in time");
                message.expect("it lives").expect("a message");
                channel.cutoff()
            });
            let mut channel = node.connect(listener.local_addr()).wait().expect("connected");
            channel.send(b"measured").wait().expect("sent");
            [channel.cutoff(), server.join().expect("no panic")]
        });
        // On a busy machine the peer may be too slow to answer; then it is not measured, and both say so.
        assert_eq!(connected, accepted);
        assert!(connected.bytes <= 16 << 10, "{connected}");
        println!("{wire}: {connected}");
        // The next channel to the same peer need not wait for trials.
        let (again, _other) = common::ends(&node, &listener);
        if connected.source == CutoffSource::Measured {
            assert_eq!(again.cutoff(), connected);
        }
    }
}

#[test]
fn a_peer_that_does_not_look_costs_a_moment_and_nothing_else() {
    let (left, _right) = pair("roce_lo", Options::default());
    assert_eq!(left.cutoff().source, CutoffSource::Usual);
}

#[test]
fn a_fixed_one_is_not_measured() {
    let (left, right) = pair("roce_lo", options(2000));
    for cutoff in [left.cutoff(), right.cutoff()] {
        assert_eq!((cutoff.bytes, cutoff.source), (2000, CutoffSource::Fixed));
    }
}
