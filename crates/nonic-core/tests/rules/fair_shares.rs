//! Queue pairs to one address share a window fairly: queue pairs whose peer is dead, slow or not ready do not keep it
//! from those whose traffic flows.

use crate::support::{Pair, Setup, Wire, ms, us};
use nonic_core::{Qpn, RemoteAddress, SendOp, Status, WindowConfig};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

const MTU: u32 = 1024;
/// Packets the window holds.
const WINDOW: u32 = 64;
/// Half a round trip.
const STEP: Duration = us(50);

/// What the peer of a queue pair is like.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Peer {
    Alive,
    /// Nothing reaches it.
    Dead,
    /// It takes, and acknowledges, one packet in this many steps.
    Slow(u32),
    /// It never posts a receive.
    NotReady,
}

/// What a queue pair is kept busy with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Work {
    /// So many requests of so many packets.
    Writes(usize, u32),
    Reads(usize, u32),
    Sends(usize, u32),
}

struct Client {
    qpn: Qpn,
    peer: Peer,
    work: Work,
    /// Packets of requests that ended well.
    done: u64,
    /// On their way to a slow peer.
    backlog: VecDeque<Wire>,
}

/// One NIC with many queue pairs to one address, and a link whose bandwidth is whatever the window permits.
struct Crowd {
    pair: Pair,
    clients: Vec<Client>,
    /// By the number of the queue pair at the far end.
    by_peer: HashMap<Qpn, usize>,
    to_b: Vec<Wire>,
    to_a: Vec<Wire>,
    steps: u32,
    most_in_flight: u64,
}

impl Crowd {
    fn new(clients: &[(Peer, Work)]) -> Crowd {
        let mut pair = Pair::new(&Setup {
            window: WindowConfig {
                initial: WINDOW * MTU,
                max: WINDOW * MTU,
            },
            // 67 ms; seven retries outlast every test.
            retry_count: 7,
            rnr_retry: 7,
            cq_capacity: 1 << 14,
            ..Setup::rc()
        });
        let mut all = Vec::new();
        let mut by_peer = HashMap::new();
        for (index, (peer, work)) in clients.iter().enumerate() {
            let (qpn, at_b) = pair.connect_more();
            by_peer.insert(at_b, index);
            all.push(Client {
                qpn,
                peer: *peer,
                work: *work,
                done: 0,
                backlog: VecDeque::new(),
            });
        }
        let mut crowd = Crowd {
            pair,
            clients: all,
            by_peer,
            to_b: Vec::new(),
            to_a: Vec::new(),
            steps: 0,
            most_in_flight: 0,
        };
        for (index, (_, work)) in clients.iter().enumerate() {
            let (Work::Writes(count, _) | Work::Reads(count, _) | Work::Sends(count, _)) = *work;
            (0..count).for_each(|_| crowd.post(index));
            crowd.transmit();
        }
        crowd
    }

    fn post(&mut self, index: usize) {
        let client = &self.clients[index];
        let remote: RemoteAddress = self.pair.b.remote(0);
        let (op, packets) = match client.work {
            Work::Writes(_, packets) => (SendOp::Write(remote), packets),
            Work::Reads(_, packets) => (SendOp::Read(remote), packets),
            Work::Sends(_, packets) => (SendOp::Send, packets),
        };
        self.pair.a.qpn = client.qpn;
        crate::post!(self.pair.a, index as u64, op, 0, packets * MTU);
    }

    fn transmit(&mut self) {
        let sent = self.pair.a.transmit();
        self.to_b.extend(sent);
        let in_flight = self.pair.a.nic.usage().in_flight_bytes;
        self.most_in_flight = self.most_in_flight.max(in_flight);
    }

    fn run(&mut self, duration: Duration) {
        for _ in 0..duration.as_micros() / STEP.as_micros() {
            self.step();
        }
    }

    /// Half a round trip: what was on its way arrives, and is answered.
    fn step(&mut self) {
        self.steps += 1;
        self.pair.advance(STEP);
        for wire in std::mem::take(&mut self.to_b) {
            self.arrive(wire);
        }
        self.let_slow_ones_take_one();
        let answers = std::mem::take(&mut self.to_a);
        self.to_a = self.pair.b.transmit();
        self.pair.a.receive_all(&answers);
        self.transmit();
        for completion in self.pair.a.completions() {
            assert_eq!(completion.status, Status::Success);
            let index = completion.wr_id as usize;
            let (Work::Writes(_, packets) | Work::Reads(_, packets) | Work::Sends(_, packets)) =
                self.clients[index].work;
            self.clients[index].done += u64::from(packets);
            self.post(index);
        }
        self.transmit();
    }

    fn arrive(&mut self, wire: Wire) {
        let client = &mut self.clients[self.by_peer[&wire.headers().bth.dest_qp]];
        match client.peer {
            Peer::Dead => {}
            Peer::Slow(_) => client.backlog.push_back(wire),
            Peer::Alive | Peer::NotReady => self.pair.b.receive(&wire),
        }
    }

    fn let_slow_ones_take_one(&mut self) {
        for client in &mut self.clients {
            let Peer::Slow(interval) = client.peer else {
                continue;
            };
            if self.steps % interval == 0 {
                if let Some(mut wire) = client.backlog.pop_front() {
                    wire.alter(|headers| headers.bth.ack_request = true);
                    self.pair.b.receive(&wire);
                }
            }
        }
    }

    fn done(&self, of: impl Fn(&Client) -> bool) -> u64 {
        self.clients
            .iter()
            .filter(|client| of(client))
            .map(|client| client.done)
            .sum()
    }
}

/// It could fill the window alone.
const BUSY: (Peer, Work) = (Peer::Alive, Work::Writes(64, 1));
const LONG: Duration = ms(300);

/// Packets that the living get through beside others.
fn delivered(others: &[(Peer, Work)], living: usize) -> u64 {
    let mut clients = others.to_vec();
    clients.extend([BUSY].repeat(living));
    let mut crowd = Crowd::new(&clients);
    crowd.run(LONG);
    assert!(
        crowd.most_in_flight <= u64::from(WINDOW * MTU),
        "{} bytes under way",
        crowd.most_in_flight
    );
    crowd.done(|client| client.peer == Peer::Alive)
}

#[track_caller]
fn the_living_keep_their_rate(others: &[(Peer, Work)], living: usize) {
    let (alone, beside) = (delivered(&[], living), delivered(others, living));
    assert!(alone > 50_000, "the window is full without the others: {alone}");
    assert!(10 * beside >= 8 * alone, "{beside} of {alone} packets");
}

/// As much as a fair share of the window permits.
#[track_caller]
fn the_living_keep_half_their_rate(others: &[(Peer, Work)]) {
    let (alone, beside) = (delivered(&[], 1), delivered(others, 1));
    assert!(10 * beside >= 4 * alone, "{beside} of {alone} packets");
}

#[test]
fn four_dead_ones_do_not_slow_down_the_living() {
    the_living_keep_their_rate(&[(Peer::Dead, Work::Writes(4, 100)); 4], 1);
}

#[test]
fn sixty_three_dead_ones_do_not_slow_down_the_living() {
    the_living_keep_their_rate(&[(Peer::Dead, Work::Writes(4, 100)); 63], 1);
}

/// Not only all of them together: none pays for the dead one.
#[test]
fn beside_one_dead_one_each_of_sixty_three_keeps_its_fair_rate() {
    let dead = [(Peer::Dead, Work::Writes(4, 100))];
    the_living_keep_their_rate(&dead, 63);
    let fair = delivered(&[], 63) / 63;
    let mut crowd = Crowd::new(&[&dead[..], &[BUSY; 63][..]].concat());
    crowd.run(LONG);
    let living = crowd.clients.iter().filter(|client| client.peer == Peer::Alive);
    let least = living.map(|client| client.done).min().expect("63 of them");
    assert!(
        10 * least >= 8 * fair,
        "{least} of {fair} packets for the one that got least"
    );
}

#[test]
fn dead_ones_that_read_do_not_slow_down_the_living() {
    the_living_keep_their_rate(&[(Peer::Dead, Work::Reads(4, 100)); 16], 1);
}

#[test]
fn one_that_acknowledges_a_packet_now_and_then_does_not_slow_down_the_others() {
    for milliseconds in [10, 60] {
        let slow = (Peer::Slow(20 * milliseconds), Work::Writes(4, 100));
        the_living_keep_their_rate(&[slow], 1);
        the_living_keep_their_rate(&[slow; 16], 4);
    }
}

#[test]
fn those_whose_peers_are_not_ready_do_not_slow_down_the_others() {
    the_living_keep_their_rate(&[(Peer::NotReady, Work::Sends(4, 4)); 1], 1);
    the_living_keep_their_rate(&[(Peer::NotReady, Work::Sends(4, 4)); 4], 4);
}

#[test]
fn thousands_of_dead_ones_have_no_more_than_the_window_under_way() {
    let clients = vec![(Peer::Dead, Work::Writes(1, 8)); 3000];
    let mut crowd = Crowd::new(&clients);
    crowd.run(LONG);
    assert!(crowd.most_in_flight <= u64::from(WINDOW * MTU));
    assert!(crowd.pair.a.nic.counters().timeouts > 0);
}

#[test]
fn the_living_go_on_long_before_the_dead_time_out() {
    let mut crowd = Crowd::new(&[(Peer::Dead, Work::Writes(4, 100)), BUSY]);
    crowd.run(ms(10));
    assert!(crowd.done(|client| client.peer == Peer::Alive) > 0);
    assert_eq!(crowd.pair.a.nic.counters().timeouts, 0);
}

#[test]
fn timeouts_of_the_dead_do_not_shrink_the_window_of_the_living() {
    let mut crowd = Crowd::new(&[BUSY, (Peer::Dead, Work::Writes(4, 100))]);
    crowd.run(ms(66));
    let mut least = u64::MAX;
    for _ in 0..100 {
        crowd.step();
        least = least.min(crowd.pair.a.nic.usage().in_flight_bytes);
    }
    assert!(crowd.pair.a.nic.counters().timeouts > 0);
    assert_eq!(
        least,
        u64::from(WINDOW * MTU),
        "the living one has the window full at any time"
    );
}

#[test]
fn two_busy_ones_get_half_each_whatever_the_size_of_their_messages() {
    for other in [Work::Writes(20, 64), Work::Reads(4, 64), Work::Writes(60, 1)] {
        let mut crowd = Crowd::new(&[BUSY, (Peer::Alive, other)]);
        crowd.run(ms(100));
        let (one, two) = (crowd.clients[0].done, crowd.clients[1].done);
        assert!(
            one.min(two) * 10 >= one.max(two) * 6,
            "{one} and {two} packets beside {other:?}"
        );
    }
}

#[test]
fn one_that_takes_its_time_gets_no_more_than_its_share_of_the_window() {
    // It never stalls: something is acknowledged in each millisecond.
    let steady = (Peer::Slow(20), Work::Writes(4, 100));
    the_living_keep_half_their_rate(&[steady]);
}

#[test]
fn a_large_read_gets_through_beside_small_packets() {
    let mut clients = vec![(Peer::Alive, Work::Writes(60, 1)); 8];
    clients.push((Peer::Alive, Work::Reads(1, 200)));
    let mut crowd = Crowd::new(&clients);
    crowd.run(ms(100));
    let read = crowd.clients[8].done;
    assert!(read >= 10 * 200, "{read} packets");
}

#[test]
fn a_slow_one_that_catches_up_gets_its_share_again() {
    let mut crowd = Crowd::new(&[(Peer::Slow(1200), Work::Writes(4, 100)), BUSY]);
    crowd.run(ms(200));
    let backlog = std::mem::take(&mut crowd.clients[0].backlog);
    crowd.to_b.extend(backlog);
    crowd.clients[0].peer = Peer::Alive;
    let before = [0, 1].map(|index| crowd.clients[index].done);
    crowd.run(ms(100));
    let [one, two] = [0, 1].map(|index| crowd.clients[index].done - before[index]);
    assert!(one * 10 >= two * 6, "{one} and {two} packets");
}
