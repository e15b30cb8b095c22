//! The rules of the protocol, one test each, as conversations between two machines or with a scripted peer.

use super::*;

type Side = Machine<Vec<u8>, Vec<u8>>;

const CREDITS: u16 = 4;
const OURS: Greeting = Greeting {
    credits: CREDITS,
    frame_bytes: 64,
    message_bytes: 1000,
};
const REMOTE: Remote = Remote { va: 7, rkey: 9 };

fn connector() -> Side {
    let mut side = Machine::new(Role::Connector, OURS, OURS, 500);
    assert_eq!(posts(&mut side), [(Kind::Hello, 0, 0)]);
    side.sent();
    side
}

fn acceptor() -> Side {
    let mut side = Machine::new(Role::Acceptor, OURS, OURS, 500);
    receives(&mut side, Frame::control(Kind::Hello, 0), b"").expect("a greeting");
    side
}

/// Everything that is to be sent now: kind, number and credits. A READ is a panic.
fn posts(side: &mut Side) -> Vec<(Kind, u32, u16)> {
    std::iter::from_fn(|| side.poll())
        .map(|action| match action {
            Action::Send { frame, .. } => (frame.kind, frame.sequence, frame.credits),
            Action::Read { id, .. } => panic!("a READ of {id:?}"),
            Action::Confirm => panic!("a READ of nothing"),
        })
        .collect()
}

/// The same, with the question behind the end whether that has arrived.
fn posts_and_asks(side: &mut Side) -> Vec<(Kind, u32, u16)> {
    let mut posts = Vec::new();
    loop {
        match side.poll() {
            Some(Action::Send { frame, .. }) => posts.push((frame.kind, frame.sequence, frame.credits)),
            last => {
                assert_eq!(last, Some(Action::Confirm));
                assert_eq!(side.poll(), None);
                return posts;
            }
        }
    }
}

/// Everything that is to be read now; all else is sent and forgotten.
fn reads(side: &mut Side) -> Vec<ReadId> {
    std::iter::from_fn(|| side.poll())
        .filter_map(|action| match action {
            Action::Read { id, .. } => Some(id),
            Action::Send { .. } | Action::Confirm => None,
        })
        .collect()
}

fn receives(side: &mut Side, frame: Frame, payload: &[u8]) -> Result<(), ProtocolError> {
    let mut bytes = vec![0; frame.bytes()];
    frame.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    let frame = Frame::parse(&bytes)?;
    Ok(side.receive(&frame, || payload.to_vec())?)
}

fn message(sequence: u32, payload: &[u8]) -> Frame {
    Frame {
        length: payload.len() as u64,
        ..Frame::control(Kind::Message, sequence)
    }
}

fn offer(sequence: u32, length: u64) -> Frame {
    Frame {
        length,
        remote: Some(REMOTE),
        ..Frame::control(Kind::Offer, sequence)
    }
}

fn violation(outcome: Result<(), ProtocolError>) -> Violation {
    match outcome {
        Err(ProtocolError::Violation(violation)) => violation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_one_who_was_asked_does_not_speak_first() {
    let mut side: Side = Machine::new(Role::Acceptor, OURS, OURS, 500);
    side.send(b"early".to_vec(), 5);
    assert_eq!(side.poll(), None);
    receives(&mut side, Frame::control(Kind::Hello, 0), b"").expect("a greeting");
    assert_eq!(posts(&mut side), [(Kind::Message, 0, 0)]);
    let twice = receives(&mut side, Frame::control(Kind::Hello, 0), b"");
    assert_eq!(violation(twice), Violation::Hello);
    let mut side: Side = Machine::new(Role::Acceptor, OURS, OURS, 500);
    assert_eq!(
        violation(receives(&mut side, message(0, b"x"), b"x")),
        Violation::Hello
    );
}

#[test]
fn messages_cost_credits_and_taking_them_returns_these() {
    let (mut left, mut right) = (connector(), acceptor());
    for number in 0..CREDITS {
        assert_eq!(left.can_send(None), Ok(true));
        left.send(vec![number as u8], 1);
    }
    assert_eq!(left.can_send(Some(1)), Ok(false));
    for number in 0..u32::from(CREDITS) {
        receives(&mut right, message(number, &[number as u8]), &[number as u8]).expect("in order");
    }
    // A single credit is not worth a frame; half of them are.
    assert_eq!(right.take(), Taken::Message(vec![0]));
    assert_eq!(posts(&mut right), []);
    assert_eq!(right.take(), Taken::Message(vec![1]));
    assert_eq!(posts(&mut right), [(Kind::Credit, 0, 2)]);
    // One that has something to say returns them with it.
    assert_eq!(right.take(), Taken::Message(vec![2]));
    right.send(b"answer".to_vec(), 6);
    assert_eq!(posts(&mut right), [(Kind::Message, 0, 1)]);
    let credits = Frame {
        credits: 2,
        ..Frame::control(Kind::Credit, 0)
    };
    receives(&mut left, credits, b"").expect("credits");
    assert_eq!(left.can_send(Some(1)), Ok(true));
}

#[test]
fn a_message_without_a_credit_ends_the_connection() {
    let mut side = acceptor();
    for number in 0..u32::from(CREDITS) {
        receives(&mut side, message(number, b"x"), b"x").expect("it has a credit");
    }
    let outcome = receives(&mut side, message(u32::from(CREDITS), b"x"), b"x");
    assert_eq!(violation(outcome), Violation::WithoutCredit);
    // One that was taken, but whose credit is still here, gives no room.
    let mut side = acceptor();
    for number in 0..u32::from(CREDITS) {
        receives(&mut side, message(number, b"x"), b"x").expect("it has a credit");
    }
    assert_eq!(side.take(), Taken::Message(b"x".to_vec()));
    let outcome = receives(&mut side, message(u32::from(CREDITS), b"x"), b"x");
    assert_eq!(violation(outcome), Violation::WithoutCredit);
}

#[test]
fn credits_that_nobody_gave_end_the_connection() {
    let frame = Frame {
        credits: 1,
        ..Frame::control(Kind::Credit, 0)
    };
    assert_eq!(
        violation(receives(&mut acceptor(), frame, b"")),
        Violation::CreditsInvented
    );
}

#[test]
fn an_offered_message_is_read_and_finished_and_waits_for_its_turn() {
    let mut side = acceptor();
    receives(&mut side, offer(0, 300), b"").expect("an offer");
    receives(&mut side, message(1, b"small"), b"small").expect("a message");
    assert_eq!(reads(&mut side), [ReadId::Message(0)]);
    assert_eq!(
        side.take(),
        Taken::Nothing,
        "the second does not overtake the first"
    );
    side.read_done(ReadId::Message(0), b"large".to_vec());
    assert_eq!(posts(&mut side), [(Kind::Finish, 0, 0)]);
    assert_eq!(side.take(), Taken::Message(b"large".to_vec()));
    assert_eq!(side.take(), Taken::Message(b"small".to_vec()));
}

#[test]
fn reading_ahead_keeps_to_its_budget() {
    let mut side = acceptor();
    // 500 bytes may be read ahead; the first may be longer.
    for (number, length) in [(0, 600), (1, 300), (2, 100)] {
        receives(&mut side, offer(number, length), b"").expect("an offer");
    }
    assert_eq!(reads(&mut side), [ReadId::Message(0)]);
    side.read_done(ReadId::Message(0), vec![0]);
    assert_eq!(reads(&mut side), []);
    assert_eq!(side.take(), Taken::Message(vec![0]));
    assert_eq!(reads(&mut side), [ReadId::Message(1), ReadId::Message(2)]);
}

#[test]
fn offers_have_a_window_and_small_messages_pass_beside_it() {
    let roomy = Greeting { credits: 100, ..OURS };
    let mut side: Side = Machine::new(Role::Connector, OURS, roomy, 500);
    for _ in 0..OFFERS {
        assert_eq!(side.can_send(Some(500)), Ok(true));
        side.offer(vec![1], REMOTE, 500);
    }
    assert_eq!(side.can_send(Some(500)), Ok(false));
    assert_eq!(side.can_send(None), Ok(false));
    assert_eq!(side.can_send(Some(1)), Ok(true));
    receives(&mut side, Frame::control(Kind::Finish, 3), b"").expect("any of them");
    assert_eq!(side.can_send(Some(500)), Ok(true));
    let again = receives(&mut side, Frame::control(Kind::Finish, 3), b"");
    assert_eq!(violation(again), Violation::Unasked);
    let mut receiver: Side = Machine::new(Role::Connector, roomy, OURS, 500);
    for number in 0..OFFERS as u32 {
        receives(&mut receiver, offer(number, 1), b"").expect("within the window");
    }
    let outcome = receives(&mut receiver, offer(OFFERS as u32, 1), b"");
    assert_eq!(violation(outcome), Violation::TooManyOffers);
}

#[test]
fn lengths_are_checked_before_anything_is_made_for_them() {
    assert_eq!(
        violation(receives(&mut acceptor(), offer(0, 1001), b"")),
        Violation::TooLong
    );
    let huge = Frame {
        kind: Kind::TrialOffer,
        ..offer(0, 65)
    };
    assert_eq!(
        violation(receives(&mut acceptor(), huge, b"")),
        Violation::TooLong
    );
}

#[test]
fn the_end_comes_after_all_messages_and_has_arrived_when_they_have() {
    let (mut left, mut right) = (connector(), acceptor());
    left.send(vec![1], 1);
    left.offer(vec![2], REMOTE, 500);
    left.end();
    assert_eq!(left.can_send(Some(1)), Err(Ended));
    assert_eq!(
        posts_and_asks(&mut left),
        [(Kind::Message, 0, 0), (Kind::Offer, 1, 0), (Kind::End, 2, 0)]
    );
    receives(&mut right, message(0, &[1]), &[1]).expect("a message");
    receives(&mut right, offer(1, 500), b"").expect("an offer");
    receives(&mut right, Frame::control(Kind::End, 2), b"").expect("the end");
    (0..3).for_each(|_| left.sent());
    left.confirmed();
    assert!(!left.is_end_arrived(), "an offer is open");
    assert_eq!(reads(&mut right), [ReadId::Message(1)]);
    right.read_done(ReadId::Message(1), vec![2]);
    assert_eq!(posts(&mut right), [(Kind::Finish, 1, 0)]);
    assert_eq!(right.take(), Taken::Message(vec![1]));
    assert_eq!(right.take(), Taken::Message(vec![2]));
    assert_eq!(right.take(), Taken::End);
    assert_eq!(
        violation(receives(&mut right, message(2, b"x"), b"x")),
        Violation::AfterEnd
    );
    receives(&mut left, Frame::control(Kind::Finish, 1), b"").expect("finished");
    assert!(left.is_end_arrived());
}

#[test]
fn an_end_arrives_without_the_program_of_the_peer() {
    let mut side = connector();
    side.send(vec![1], 1);
    side.end();
    assert_eq!(
        posts_and_asks(&mut side),
        [(Kind::Message, 0, 0), (Kind::End, 1, 0)]
    );
    side.sent();
    side.sent();
    assert!(!side.is_end_arrived(), "TCP has it, and perhaps nobody else");
    side.confirmed();
    assert!(side.is_end_arrived());
    side.close();
    assert!(side.is_end_arrived(), "it had arrived before");
}

/// With acknowledgements, a peer that has taken the end may leave before it is asked.
#[test]
fn an_end_that_was_acknowledged_has_arrived_though_the_peer_left() {
    let mut side = connector();
    side.send(vec![1], 1);
    side.end();
    assert_eq!(posts_and_asks(&mut side).len(), 2);
    side.delivered();
    assert!(!side.is_end_arrived(), "that was the message");
    side.delivered();
    assert!(side.is_end_arrived());
    side.close();
    assert!(side.is_end_arrived());
}

#[test]
fn a_peer_that_ends_and_leaves_has_seen_what_was_sent_and_no_more() {
    let end = Frame::control(Kind::End, 0);
    for (completed, seen) in [(true, true), (false, false)] {
        let mut side = acceptor();
        side.send(vec![1], 1);
        assert_eq!(posts(&mut side).len(), 1);
        if completed {
            side.sent();
        }
        receives(&mut side, end, b"").expect("the end");
        side.end();
        assert_eq!(posts_and_asks(&mut side), [(Kind::End, 1, 0)]);
        side.close();
        assert_eq!(side.is_end_arrived(), seen);
    }
    let mut side = acceptor();
    side.end();
    side.close();
    assert!(!side.is_end_arrived(), "the peer did not say that it ends");
}

#[test]
fn an_end_that_skips_messages_ends_the_connection() {
    let outcome = receives(&mut acceptor(), Frame::control(Kind::End, 1), b"");
    assert_eq!(violation(outcome), Violation::OutOfOrder);
}

#[test]
fn what_is_here_can_be_taken_after_the_connection_is_gone() {
    let mut side = acceptor();
    receives(&mut side, message(0, b"x"), b"x").expect("a message");
    receives(&mut side, offer(1, 500), b"").expect("an offer");
    receives(&mut side, message(2, b"y"), b"y").expect("a message");
    side.close();
    assert_eq!(side.poll(), None);
    assert_eq!(side.take(), Taken::Message(b"x".to_vec()));
    assert_eq!(
        side.take(),
        Taken::Lost,
        "what follows a lost one is not delivered"
    );
    assert_eq!(side.can_send(None), Err(Ended));
}

#[test]
fn a_message_out_of_order_ends_the_connection() {
    assert_eq!(
        violation(receives(&mut acceptor(), message(1, b"x"), b"x")),
        Violation::OutOfOrder
    );
}

#[test]
fn flushed_is_when_frames_have_completed_and_offers_are_finished() {
    let mut side = connector();
    side.send(vec![1], 1);
    side.offer(vec![2], REMOTE, 500);
    assert!(!side.is_flushed());
    assert_eq!(posts(&mut side).len(), 2);
    side.sent();
    side.sent();
    assert!(!side.is_flushed(), "an offer is open");
    receives(&mut side, Frame::control(Kind::Finish, 1), b"").expect("finished");
    assert!(side.is_flushed());
    side.end();
    assert!(!side.is_flushed(), "the end is not said yet");
}

#[test]
fn trials_are_answered_and_are_no_messages() {
    let (mut left, mut right) = (connector(), acceptor());
    left.send_trial(vec![0; 8], 8, None);
    assert_eq!(posts(&mut left), [(Kind::Trial, 0, 0)]);
    let trial = Frame {
        kind: Kind::Trial,
        ..message(0, &[0; 8])
    };
    receives(&mut right, trial, &[0; 8]).expect("a trial");
    assert_eq!(posts(&mut right), [(Kind::TrialDone, 0, 1)]);
    assert_eq!(right.take(), Taken::Nothing);
    let done = Frame {
        credits: 1,
        ..Frame::control(Kind::TrialDone, 0)
    };
    receives(&mut left, done, b"").expect("done");
    assert!(!left.in_trial());
    assert_eq!(
        violation(receives(&mut left, Frame::control(Kind::TrialDone, 0), b"")),
        Violation::Unasked
    );
    let offered = Frame {
        kind: Kind::TrialOffer,
        ..offer(0, 64)
    };
    receives(&mut right, offered, b"").expect("a trial");
    assert_eq!(
        violation(receives(&mut right, offered, b"")),
        Violation::TooManyOffers
    );
    assert_eq!(reads(&mut right), [ReadId::Trial]);
    right.read_done(ReadId::Trial, vec![]);
    assert_eq!(posts(&mut right), [(Kind::TrialDone, 0, 1)]);
}

#[test]
fn the_cut_off_is_told_and_kept_within_the_frames() {
    let (mut left, mut right) = (connector(), acceptor());
    assert_eq!(left.cutoff(), 48);
    left.set_cutoff(20);
    left.tell_cutoff();
    assert_eq!(posts(&mut left), [(Kind::Cutoff, 0, 0)]);
    let told = |length| Frame {
        length,
        ..Frame::control(Kind::Cutoff, 0)
    };
    receives(&mut right, told(20), b"").expect("told");
    assert!(right.is_eager(20) && !right.is_eager(21));
    receives(&mut right, told(u64::MAX), b"").expect("told");
    assert_eq!(right.cutoff(), 48);
}

#[test]
fn no_bytes_are_a_panic() {
    let frames = [message(0, b"abc"), offer(0, 5), Frame::control(Kind::Finish, 0)];
    for frame in frames {
        let mut bytes = vec![0; frame.bytes()];
        frame.emit(&mut bytes);
        if frame.kind == Kind::Message {
            bytes.extend_from_slice(b"abc");
        }
        assert_eq!(Frame::parse(&bytes), Ok(frame));
        for cut in 0..bytes.len() {
            assert!(Frame::parse(&bytes[..cut]).is_err());
        }
        for at in 0..bytes.len() {
            for value in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = value;
                // Whatever it says, it is an error or taken for what it is.
                if let Ok(frame) = Frame::parse(&changed) {
                    let _ = acceptor().receive(&frame, Vec::new);
                }
            }
        }
    }
}

#[test]
fn greetings_of_others_are_told_apart() {
    let bytes = OURS.emit();
    assert_eq!(Greeting::parse(&bytes), Ok(OURS));
    let mut other = bytes;
    other[4] = 2;
    assert_eq!(Greeting::parse(&other), Err(GreetingError::Version(2)));
    assert_eq!(Greeting::parse(&[0; 56]), Err(GreetingError::Foreign));
    assert_eq!(Greeting::parse(b""), Err(GreetingError::Foreign));
    let none = Greeting { credits: 0, ..OURS };
    assert_eq!(Greeting::parse(&none.emit()), Err(GreetingError::Invalid));
}
