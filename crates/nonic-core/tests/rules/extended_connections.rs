//! Extended reliable connections: one connection for all the shared receive queues of a domain.

use crate::support::{Node, Pair, Setup, SharedHost, outcomes, pattern};
use crate::{completed, sent};
use nonic_core::{
    Access, Completion, CompletionOpcode, CompletionQueue, CqId, CreateError, Data, Destination, Event, Key,
    PdId, PostError, QpState, Qpn, ReceiveQueue, RecvRequest, RemoteAddress, SendFlags, SendOp, Service, Sge,
    SrqId, Status, XrcDomain,
};
use nonic_wire::Opcode;
use std::sync::Arc;

const DOMAIN: XrcDomain = XrcDomain(1);

/// A shared receive queue with a protection domain, memory and a completion queue of its own.
struct Srq {
    number: u32,
    rq: Arc<ReceiveQueue>,
    cq: Arc<CompletionQueue>,
    key: Arc<Key>,
}

impl Srq {
    fn new(node: &mut Node, domain: XrcDomain) -> Srq {
        let pd = node.keys().alloc_pd();
        Srq::of(node, domain, pd, 64)
    }

    fn of(node: &mut Node, domain: XrcDomain, pd: PdId, cq_capacity: usize) -> Srq {
        let key = node.register(|spec| spec.pd = pd);
        let rq = Arc::new(ReceiveQueue::shared(SrqId(7), pd, 16, 4));
        let cq = Arc::new(CompletionQueue::new(CqId(7), cq_capacity));
        let number = node
            .nic
            .add_xrc_srq(domain, Arc::clone(&rq), Arc::clone(&cq))
            .expect("a number");
        Srq { number, rq, cq, key }
    }

    fn post(&self, wr_id: u64, offset: u64, length: u32) {
        let sge = Sge {
            addr: self.key.iova() + offset,
            length,
            lkey: self.key.value(),
        };
        let request = RecvRequest { wr_id, sges: &[sge] };
        self.rq.post(&request).expect("the receive is posted");
    }

    fn completions(&self, node: &mut Node) -> Vec<Completion> {
        node.nic.publish();
        let mut completions = Vec::new();
        self.cq
            .poll(100, |completion| completions.push(completion))
            .expect("no overflow");
        completions
    }

    fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            va: self.key.iova() + offset,
            rkey: self.key.value(),
        }
    }
}

/// An initiator at the first node, connected to a target at the second.
fn pair() -> Pair {
    let setup = Setup {
        service: Service::Xrc,
        ..Setup::default()
    };
    let mut pair = Pair::unconnected(&setup);
    pair.b.destroy_qp(pair.b.qpn);
    pair.b.qpn = target(&mut pair.b, DOMAIN);
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    pair.connect(a, b);
    pair
}

fn target(node: &mut Node, domain: XrcDomain) -> Qpn {
    let qpn = node.nic.create_xrc_target(domain).expect("a target");
    let to_init = node.setup.to_init();
    node.modify(qpn, &to_init).expect("RESET to INIT");
    qpn
}

/// Posts 8 or more bytes of the first node's memory for an SRQ.
#[track_caller]
fn post(pair: &mut Pair, wr_id: u64, op: SendOp, length: u32, srq: &Srq) {
    let to = Destination::srq(srq.number);
    pair.a
        .post_to(wr_id, op, (0, length), to)
        .expect("the request is posted");
}

#[test]
fn an_extended_connection_to_a_peer_on_the_same_host_sends_packets() {
    let mut pair = pair();
    let host = SharedHost::default();
    host.join(&mut pair.a);
    host.join(&mut pair.b);
    let srq = Srq::new(&mut pair.b, DOMAIN);
    post(&mut pair, 1, SendOp::Write(srq.remote(0)), 64, &srq);
    assert_eq!(pair.exchange(), 2, "a packet and its acknowledgement");
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(host.pieces(), (0, 0));
    assert_eq!(host.published(&pair.b, pair.b.qpn), None);
}

#[test]
fn a_message_goes_to_the_srq_it_names() {
    let mut pair = pair();
    let (one, two) = (Srq::new(&mut pair.b, DOMAIN), Srq::new(&mut pair.b, DOMAIN));
    one.post(10, 0, 3000);
    two.post(20, 3000, 3000);
    pair.a.fill(0, &pattern(1, 3000));
    post(&mut pair, 1, SendOp::Send, 3000, &two);
    post(&mut pair, 2, SendOp::SendWithImmediate(5), 10, &one);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    let at_two = two.completions(&mut pair.b);
    assert_eq!(outcomes(&at_two), [(20, Status::Success)]);
    assert_eq!((at_two[0].byte_len, at_two[0].qpn), (3000, pair.b.qpn));
    assert_eq!(pair.b.bytes(3000, 3000), pattern(1, 3000));
    let at_one = one.completions(&mut pair.b);
    assert_eq!(outcomes(&at_one), [(10, Status::Success)]);
    assert_eq!(at_one[0].immediate, Some(5));
}

#[test]
fn what_comes_early_goes_to_the_srq_it_names() {
    let mut pair = pair();
    let (one, two) = (Srq::new(&mut pair.b, DOMAIN), Srq::new(&mut pair.b, DOMAIN));
    one.post(10, 0, 3000);
    two.post(20, 3000, 3000);
    pair.a.fill(0, &pattern(1, 3000));
    post(&mut pair, 1, SendOp::Send, 3000, &two);
    post(&mut pair, 2, SendOp::Send, 10, &one);
    let requests = pair.a.transmit();
    assert_eq!(requests.len(), 4);
    pair.b.receive_all(requests.iter().rev());
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(outcomes(&two.completions(&mut pair.b)), [(20, Status::Success)]);
    assert_eq!(outcomes(&one.completions(&mut pair.b)), [(10, Status::Success)]);
    assert_eq!(pair.b.bytes(3000, 3000), pattern(1, 3000));
    assert_eq!(pair.b.nic.counters().rx_kept, 3);
}

#[test]
fn every_packet_of_a_request_names_the_srq_and_no_answer_does() {
    let mut pair = pair();
    let srq = Srq::new(&mut pair.b, DOMAIN);
    srq.post(10, 0, 3000);
    post(&mut pair, 1, SendOp::Send, 3000, &srq);
    let packets = sent!(pair.a, [XRC_SEND_FIRST, XRC_SEND_MIDDLE, XRC_SEND_LAST]);
    for packet in &packets {
        assert_eq!(packet.headers().xrc_srqn, srq.number);
    }
    pair.b.receive_all(&packets);
    sent!(pair.b, [XRC_ACKNOWLEDGE]);
}

#[test]
fn all_operations_use_the_memory_of_the_srqs_domain() {
    let mut pair = pair();
    let srq = Srq::new(&mut pair.b, DOMAIN);
    srq.post(10, 0, 0);
    pair.a.fill(0, &pattern(1, 8));
    pair.b.set_word(64, 40);
    let add = SendOp::FetchAdd {
        remote: srq.remote(64),
        add: 2,
    };
    post(&mut pair, 1, SendOp::Write(srq.remote(0)), 8, &srq);
    post(
        &mut pair,
        2,
        SendOp::WriteWithImmediate(srq.remote(8), 9),
        8,
        &srq,
    );
    post(&mut pair, 3, add, 8, &srq);
    post(&mut pair, 4, SendOp::Read(srq.remote(64)), 8, &srq);
    pair.exchange();
    let done = completed!(
        pair.a,
        [
            (1, Status::Success),
            (2, Status::Success),
            (3, Status::Success),
            (4, Status::Success)
        ]
    );
    assert_eq!(done[3].opcode, CompletionOpcode::Read);
    assert_eq!(pair.b.bytes(8, 8), pattern(1, 8));
    assert_eq!(pair.a.word(0), 42);
    let told = srq.completions(&mut pair.b);
    assert_eq!(told[0].opcode, CompletionOpcode::RecvWriteWithImmediate);
}

#[test]
fn memory_of_another_srqs_domain_is_refused() {
    let fetch = |remote| SendOp::FetchAdd { remote, add: 1 };
    for op in [SendOp::Write as fn(RemoteAddress) -> SendOp, SendOp::Read, fetch] {
        let mut pair = pair();
        let (one, two) = (Srq::new(&mut pair.b, DOMAIN), Srq::new(&mut pair.b, DOMAIN));
        post(&mut pair, 1, op(one.remote(0)), 8, &two);
        pair.exchange();
        completed!(pair.a, [(1, Status::RemoteAccess)]);
        assert_eq!(pair.b.state(), QpState::Error);
    }
}

#[test]
fn an_srq_that_is_not_there_is_refused() {
    for op in [SendOp::Send, SendOp::Write(RemoteAddress::default())] {
        let mut pair = pair();
        let srq = Srq::new(&mut pair.b, DOMAIN);
        srq.post(10, 0, 8);
        assert!(pair.b.nic.remove_xrc_srq(srq.number));
        assert!(!pair.b.nic.remove_xrc_srq(srq.number));
        post(&mut pair, 1, op, 0, &srq);
        pair.exchange();
        completed!(pair.a, [(1, Status::RemoteInvalidRequest)]);
        assert_eq!(pair.b.state(), QpState::Error);
        assert_eq!(srq.completions(&mut pair.b), []);
    }
}

#[test]
fn an_srq_of_another_domain_is_refused() {
    let mut pair = pair();
    let foreign = Srq::new(&mut pair.b, XrcDomain(2));
    foreign.post(10, 0, 8);
    post(&mut pair, 1, SendOp::Send, 8, &foreign);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteInvalidRequest)]);
    assert_eq!(foreign.completions(&mut pair.b), []);
}

#[test]
fn a_message_stays_with_its_srq() {
    let mut pair = pair();
    let (one, two) = (Srq::new(&mut pair.b, DOMAIN), Srq::new(&mut pair.b, DOMAIN));
    one.post(10, 0, 3000);
    two.post(20, 0, 3000);
    post(&mut pair, 1, SendOp::Send, 2000, &one);
    let mut packets = pair.a.transmit();
    packets[1].alter(|headers| headers.xrc_srqn = two.number);
    pair.b.receive_all(&packets);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteInvalidRequest)]);
    let ended = one.completions(&mut pair.b);
    assert_eq!(outcomes(&ended), [(10, Status::LocalQpOperation)]);
    assert_eq!(two.completions(&mut pair.b), []);
}

#[test]
fn an_empty_srq_asks_for_patience() {
    let mut pair = pair();
    let srq = Srq::new(&mut pair.b, DOMAIN);
    post(&mut pair, 1, SendOp::Send, 8, &srq);
    pair.exchange();
    completed!(pair.a, []);
    srq.post(10, 0, 8);
    pair.advance(std::time::Duration::from_secs(1));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(srq.completions(&mut pair.b).len(), 1);
}

#[test]
fn the_srqs_limit_is_reported() {
    let mut pair = pair();
    let srq = Srq::new(&mut pair.b, DOMAIN);
    srq.post(10, 0, 8);
    srq.rq.set_limit(1);
    pair.b.events();
    post(&mut pair, 1, SendOp::Send, 8, &srq);
    pair.exchange();
    assert!(pair.b.events().contains(&Event::SrqLimit(SrqId(7))));
}

#[test]
fn a_repeated_read_is_answered_for_the_srq_it_names() {
    let mut pair = pair();
    let (one, two) = (Srq::new(&mut pair.b, DOMAIN), Srq::new(&mut pair.b, DOMAIN));
    two.post(20, 0, 8);
    post(&mut pair, 1, SendOp::Read(one.remote(0)), 8, &one);
    post(&mut pair, 2, SendOp::Send, 8, &two);
    let requests = sent!(pair.a, [XRC_RDMA_READ_REQUEST, XRC_SEND_ONLY]);
    pair.b.receive_all(&requests);
    sent!(pair.b, [XRC_RDMA_READ_RESPONSE_ONLY, XRC_ACKNOWLEDGE]);
    pair.b.receive(&requests[0]);
    sent!(pair.b, [XRC_RDMA_READ_RESPONSE_ONLY]);
    assert!(pair.b.nic.remove_xrc_srq(one.number));
    pair.b.receive(&requests[0]);
    sent!(pair.b, []);
}

#[test]
fn a_failing_target_ends_the_receive_in_progress_at_its_srq() {
    let mut pair = pair();
    let srq = Srq::new(&mut pair.b, DOMAIN);
    srq.post(10, 0, 3000);
    srq.post(11, 0, 3000);
    post(&mut pair, 1, SendOp::Send, 2000, &srq);
    let packets = pair.a.transmit();
    pair.b.receive(&packets[0]);
    pair.b.go_to(QpState::Error);
    let ended = srq.completions(&mut pair.b);
    assert_eq!(outcomes(&ended), [(10, Status::Flushed)]);
    assert_eq!(srq.rq.len(), 1, "what is not begun stays for other targets");
    assert!(pair.b.events().contains(&Event::LastWqeReached(pair.b.qpn)));
}

#[test]
fn destroying_a_target_loses_no_completion_of_an_srq() {
    let mut pair = pair();
    let srq = Srq::new(&mut pair.b, DOMAIN);
    srq.post(10, 0, 8);
    post(&mut pair, 1, SendOp::Send, 8, &srq);
    let packets = pair.a.transmit();
    pair.b.receive_all(&packets);
    pair.b.destroy_qp(pair.b.qpn);
    assert_eq!(srq.completions(&mut pair.b).len(), 1);
}

#[test]
fn an_overflow_of_the_srqs_completion_queue_fails_its_targets() {
    let mut pair = pair();
    let pd = pair.b.pd;
    let srq = Srq::of(&mut pair.b, DOMAIN, pd, 1);
    let bystander = target(&mut pair.b, XrcDomain(2));
    for wr_id in 0..2 {
        srq.post(wr_id, 0, 8);
        post(&mut pair, wr_id, SendOp::Send, 8, &srq);
    }
    pair.exchange();
    pair.b.nic.publish();
    assert_eq!(pair.b.state(), QpState::Error);
    assert_eq!(pair.b.nic.qp_state(bystander), Some(QpState::Init));
}

#[test]
fn an_initiator_takes_no_requests_and_a_target_makes_none() {
    let mut pair = pair();
    let srq = Srq::new(&mut pair.a, DOMAIN);
    srq.post(10, 0, 8);
    // A request that comes the other way round.
    post(&mut pair, 1, SendOp::Send, 8, &srq);
    let mut packets = pair.a.transmit();
    let flow = pair.b.flow_to(pair.a.ip);
    packets[0].flow = flow;
    packets[0].alter(|headers| {
        headers.bth.dest_qp = pair.a.qpn;
        headers.bth.psn = nonic_core::Psn::new(pair.a.setup.second_psn);
    });
    pair.a.receive(&packets[0]);
    sent!(pair.a, []);
    assert_eq!(srq.completions(&mut pair.a), []);
    assert_eq!(pair.a.state(), QpState::Rts);

    let to = Destination::srq(srq.number);
    let posted = pair.b.post_to(1, SendOp::Send, (0, 8), to);
    assert_eq!(posted, Err(PostError::Unsupported));
}

#[test]
fn neither_half_has_a_receive_queue() {
    let mut pair = pair();
    assert_eq!(pair.a.try_recv(1, 0, 8), Err(PostError::Unsupported));
    assert_eq!(pair.b.try_recv(1, 0, 8), Err(PostError::Unsupported));
    let mut init = pair.a.qp_init();
    init.srq = Some(Arc::new(ReceiveQueue::shared(SrqId(1), pair.a.pd, 1, 1)));
    assert_eq!(pair.a.nic.create_qp(init), Err(CreateError::Unsupported));
}

#[test]
fn a_request_must_name_an_srq_unless_it_is_local() {
    let mut pair = pair();
    let data = [pair.a.sge(0, 8)];
    let flags = SendFlags::SIGNALED;
    let posted = pair.a.post(1, SendOp::Send, Data::Sges(&data), flags);
    assert_eq!(posted, Err(PostError::Destination));
    let key = pair.a.register(|spec| spec.access = Access::empty());
    let local = SendOp::LocalInvalidate(key.value());
    pair.a.post(2, local, Data::Sges(&[]), flags).expect("posted");
    pair.exchange();
    completed!(pair.a, [(2, Status::Success)]);
}

#[test]
fn lost_packets_are_repeated() {
    let mut pair = pair();
    let srq = Srq::new(&mut pair.b, DOMAIN);
    srq.post(10, 0, 8);
    post(&mut pair, 1, SendOp::Send, 8, &srq);
    pair.a.transmit();
    pair.advance(std::time::Duration::from_secs(1));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(outcomes(&srq.completions(&mut pair.b)), [(10, Status::Success)]);
}

#[test]
fn packets_of_the_plain_service_are_not_for_extended_connections() {
    let mut pair = pair();
    let srq = Srq::new(&mut pair.b, DOMAIN);
    srq.post(10, 0, 8);
    post(&mut pair, 1, SendOp::Send, 8, &srq);
    let mut packets = pair.a.transmit();
    packets[0].alter(|headers| headers.bth.opcode = Opcode::RC_SEND_ONLY);
    pair.b.receive_all(&packets);
    sent!(pair.b, []);
    assert_eq!(srq.completions(&mut pair.b), []);
}

#[test]
fn srq_numbers_have_24_bits_and_differ() {
    let mut node = Node::new(1, &Setup::rc());
    let mut numbers: Vec<u32> = (0..1000).map(|_| Srq::new(&mut node, DOMAIN).number).collect();
    assert!(numbers.iter().all(|number| (1..1 << 24).contains(number)));
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 1000);
}
