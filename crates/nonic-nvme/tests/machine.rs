//! The controller as a machine: scripted commands with explicit time, one rule per test.

use nonic_nvme::DISCOVERY_NQN;
use nonic_nvme::controller::{Limits, Place, Queue, Response, Source, Step, Subsystem, SubsystemConfig};
use nonic_nvme::wire::{
    CmRequest, Command, Completion, Configuration, ConnectData, ConnectFields, DiscoveryEntry, FabricsType,
    Feature, IdentifyController, IdentifyNamespace, KeyedSgl, Nqn, Property, PropertyFields, RdmaProvider,
    Refusal, Sgl, Status, admin, cns, nvm,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2026-11.org.example:disk";
const HOST: &str = "nqn.2026-11.org.example:host";
const BLOCKS: u64 = 1000;

fn subsystem() -> Arc<Subsystem> {
    Arc::new(Subsystem::new(SubsystemConfig {
        nqn: Nqn::new(NQN).expect("a name"),
        bytes: BLOCKS * 512 + 100,
        block_shift: 9,
    }))
}

fn open(subsystem: &Arc<Subsystem>, qid: u16, hsqsize: u16, now: Instant) -> Result<Queue, Refusal> {
    let place = Place {
        address: [127, 0, 0, 1].into(),
        port: 4420,
        provider: RdmaProvider::RoceV2,
    };
    let request = CmRequest {
        qid,
        hrqsize: 32,
        hsqsize,
        cntlid: 0,
    };
    Queue::open(subsystem, place, request, now)
}

fn keyed(length: u32) -> [u8; 16] {
    keyed_sgl(length).emit()
}

fn keyed_sgl(length: u32) -> Sgl {
    Sgl::Keyed(KeyedSgl {
        address: 0x1000,
        length,
        key: 77,
        invalidate: false,
    })
}

/// What a command is answered with, if it is answered at once.
fn status_of(step: Step) -> Status {
    match step {
        Step::Respond(response) | Step::Transfer { response, .. } => response.completion.status.code(),
        other => panic!("not answered at once: {other:?}"),
    }
}

fn connect_command(qid: u16, sqsize: u16, kato_ms: u32) -> Command {
    let mut command = Command::connect(&ConnectFields {
        record_format: 0,
        qid,
        sqsize,
        attributes: 0,
        kato_ms,
    });
    command.sgl = keyed(1024);
    command
}

fn connect_data(cntlid: u16, subsystem: &str, host: &str) -> ConnectData {
    ConnectData {
        host_id: [1; 16],
        cntlid,
        subsystem_nqn: subsystem.to_owned(),
        host_nqn: host.to_owned(),
    }
}

fn say_connect(queue: &mut Queue, command: Command, data: &ConnectData, now: Instant) -> Completion {
    match queue.handle(&command.emit(), now) {
        Step::Fetch { length, pending, .. } => {
            assert_eq!(length, 1024);
            queue.handle_connect_data(pending, &data.emit(), now).completion
        }
        Step::Respond(response) => response.completion,
        other => panic!("{other:?}"),
    }
}

fn admin_queue(subsystem: &Arc<Subsystem>, nqn: &str, kato_ms: u32, now: Instant) -> Queue {
    let mut queue = open(subsystem, 0, 31, now).expect("accepted");
    let data = connect_data(ConnectData::ANY_CONTROLLER, nqn, HOST);
    let answer = say_connect(&mut queue, connect_command(0, 31, kato_ms), &data, now);
    assert_eq!(answer.status, Status::SUCCESS);
    let enable = property(
        FabricsType::PropertySet,
        Property::Configuration,
        Configuration::ENABLED.0.into(),
    );
    assert_eq!(status_of(queue.handle(&enable.emit(), now)), Status::SUCCESS);
    queue
}

fn property(kind: FabricsType, property: Property, value: u64) -> Command {
    let fields = PropertyFields {
        is_wide: property.is_wide(),
        offset: property.offset(),
        value,
    };
    Command::property(kind, &fields)
}

/// An admin queue and an I/O queue of one host.
fn queues(subsystem: &Arc<Subsystem>, now: Instant) -> (Queue, Queue) {
    let admin = admin_queue(subsystem, NQN, 0, now);
    let cntlid = admin.controller().expect("connected").cntlid;
    let mut io = open(subsystem, 1, 15, now).expect("accepted");
    let data = connect_data(cntlid, NQN, HOST);
    let answer = say_connect(&mut io, connect_command(1, 15, 0), &data, now);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, cntlid.into()));
    (admin, io)
}

fn transfer(opcode: u8, first: u64, blocks: u16, described: u32) -> [u8; 64] {
    let mut command = Command::transfer(opcode, 1, first, blocks);
    command.sgl = keyed(described);
    command.emit()
}

#[test]
fn a_read_becomes_a_disk_access_of_the_same_bytes() {
    let now = Instant::now();
    let subsystem = subsystem();
    let (_admin, mut io) = queues(&subsystem, now);
    match io.handle(&transfer(nvm::READ, 3, 8, 4096), now) {
        Step::DiskRead {
            at,
            length,
            to,
            pending,
        } => {
            assert_eq!((at, length), (3 * 512, 4096));
            assert_eq!((to.address, to.key), (0x1000, 77));
            let Response {
                completion,
                invalidate,
            } = io.finish(pending, Ok(()));
            assert_eq!(
                (completion.status, completion.sq_id, invalidate),
                (Status::SUCCESS, 1, None)
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_beyond_the_last_block_is_read_or_written() {
    let now = Instant::now();
    let subsystem = subsystem();
    let (_admin, mut io) = queues(&subsystem, now);
    for opcode in [nvm::READ, nvm::WRITE] {
        let last = transfer(opcode, BLOCKS - 1, 1, 512);
        assert!(matches!(
            io.handle(&last, now),
            Step::DiskRead { .. } | Step::DiskWrite { .. }
        ));
        for (first, blocks) in [
            (BLOCKS, 1),
            (BLOCKS - 1, 2),
            (u64::MAX, 1),
            (u64::MAX - 1, 2),
            (1 << 55, 1),
        ] {
            let beyond = transfer(opcode, first, blocks, 1 << 20);
            assert_eq!(status_of(io.handle(&beyond, now)), Status::LBA_OUT_OF_RANGE);
        }
    }
}

#[test]
fn a_descriptor_that_is_too_short_or_of_another_kind_is_refused() {
    let now = Instant::now();
    let subsystem = subsystem();
    let (_admin, mut io) = queues(&subsystem, now);
    let short = transfer(nvm::READ, 0, 8, 4095);
    assert_eq!(status_of(io.handle(&short, now)), Status::SGL_LENGTH_INVALID);
    let mut command = Command::transfer(nvm::READ, 1, 0, 8);
    // A segment of descriptors.
    command.sgl[15] = 0x20;
    assert_eq!(
        status_of(io.handle(&command.emit(), now)),
        Status::SGL_TYPE_INVALID
    );
    let behind = Sgl::InCapsule {
        offset: 0,
        length: 4096,
    };
    command.sgl = behind.emit();
    assert_eq!(
        status_of(io.handle(&command.emit(), now)),
        Status::SGL_TYPE_INVALID,
        "data to the host is not in a capsule"
    );
}

#[test]
fn data_in_a_capsule_must_be_in_the_capsule() {
    let now = Instant::now();
    let subsystem = subsystem();
    let (_admin, mut io) = queues(&subsystem, now);
    let mut command = Command::transfer(nvm::WRITE, 1, 0, 1);
    let capsule = |command: &Command| [&command.emit()[..], &[5; 600]].concat();
    command.sgl = Sgl::InCapsule {
        offset: 88,
        length: 512,
    }
    .emit();
    match io.handle(&capsule(&command), now) {
        Step::DiskWrite { from, .. } => assert_eq!(from, Source::Capsule(64 + 88..64 + 600)),
        other => panic!("{other:?}"),
    }
    for offset in [89, u64::MAX, u64::MAX - 63, 1 << 40] {
        command.sgl = Sgl::InCapsule { offset, length: 512 }.emit();
        assert_eq!(
            status_of(io.handle(&capsule(&command), now)),
            Status::SGL_OFFSET_INVALID
        );
    }
}

#[test]
fn more_than_the_longest_transfer_is_refused_before_anything_is_allocated() {
    let now = Instant::now();
    let large = Arc::new(Subsystem::new(SubsystemConfig {
        nqn: Nqn::new(NQN).expect("a name"),
        bytes: 1 << 40,
        block_shift: 12,
    }));
    let (_admin, mut io) = queues(&large, now);
    assert!(matches!(
        io.handle(&transfer(nvm::READ, 0, 256, 1 << 20), now),
        Step::DiskRead { .. }
    ));
    assert_eq!(
        status_of(io.handle(&transfer(nvm::READ, 0, 257, 0xff_ffff), now)),
        Status::INVALID_FIELD
    );
}

#[test]
fn the_key_to_be_revoked_comes_back_with_the_answer() {
    let now = Instant::now();
    let subsystem = subsystem();
    let (_admin, mut io) = queues(&subsystem, now);
    let mut command = Command::transfer(nvm::READ, 1, 0, 1);
    command.sgl = Sgl::Keyed(KeyedSgl {
        address: 0,
        length: 512,
        key: 99,
        invalidate: true,
    })
    .emit();
    match io.handle(&command.emit(), now) {
        Step::DiskRead { pending, .. } => {
            let response = io.finish(pending, Err(Status::UNRECOVERED_READ));
            assert_eq!(response.invalidate, Some(99));
            assert_eq!(response.completion.status, Status::UNRECOVERED_READ);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn before_connect_nothing_else_is_done_and_connect_is_done_once() {
    let now = Instant::now();
    let subsystem = subsystem();
    let mut queue = open(&subsystem, 0, 31, now).expect("accepted");
    let identify = Command::new(admin::IDENTIFY, 0).emit();
    assert_eq!(
        status_of(queue.handle(&identify, now)),
        Status::COMMAND_SEQUENCE_ERROR
    );
    let get = property(FabricsType::PropertyGet, Property::Status, 0).emit();
    assert_eq!(status_of(queue.handle(&get, now)), Status::COMMAND_SEQUENCE_ERROR);
    let mut queue = admin_queue(&subsystem, NQN, 0, now);
    let again = connect_command(0, 31, 0).emit();
    assert_eq!(
        status_of(queue.handle(&again, now)),
        Status::COMMAND_SEQUENCE_ERROR
    );
}

#[test]
fn two_connects_at_once_make_one_controller() {
    let now = Instant::now();
    let subsystem = subsystem();
    let mut queue = open(&subsystem, 0, 31, now).expect("accepted");
    let command = connect_command(0, 31, 0).emit();
    let data = connect_data(ConnectData::ANY_CONTROLLER, NQN, HOST).emit();
    let (first, second) = (queue.handle(&command, now), queue.handle(&command, now));
    let (Step::Fetch { pending: first, .. }, Step::Fetch { pending: second, .. }) = (first, second) else {
        panic!("the data is fetched");
    };
    let status = |response: Response| response.completion.status.code();
    assert_eq!(
        status(queue.handle_connect_data(first, &data, now)),
        Status::SUCCESS
    );
    assert_eq!(
        status(queue.handle_connect_data(second, &data, now)),
        Status::COMMAND_SEQUENCE_ERROR
    );
    assert_eq!(subsystem.controllers(), 1);
}

#[test]
fn connect_says_which_parameter_is_wrong() {
    let now = Instant::now();
    let subsystem = subsystem();
    let any = ConnectData::ANY_CONTROLLER;
    let cases = [
        (
            connect_command(0, 31, 0),
            connect_data(any, "nqn.other", HOST),
            1 << 16 | 256,
        ),
        (
            connect_command(0, 31, 0),
            connect_data(5, NQN, HOST),
            1 << 16 | 16,
        ),
        (
            connect_command(0, 31, 0),
            connect_data(any, NQN, ""),
            1 << 16 | 512,
        ),
        (connect_command(1, 31, 0), connect_data(any, NQN, HOST), 42),
        (connect_command(0, 32, 0), connect_data(any, NQN, HOST), 44),
        (connect_command(0, 0, 0), connect_data(any, NQN, HOST), 44),
    ];
    for (command, data, wrong) in cases {
        let mut queue = open(&subsystem, 0, 31, now).expect("accepted");
        let answer = say_connect(&mut queue, command, &data, now);
        assert_eq!(answer.status.code(), Status::CONNECT_INVALID_PARAMETER);
        assert_eq!(answer.result, wrong);
    }
    assert_eq!(subsystem.controllers(), 0);
}

#[test]
fn an_io_queue_belongs_to_the_host_whose_controller_it_names() {
    let now = Instant::now();
    let subsystem = subsystem();
    let (admin, io) = queues(&subsystem, now);
    let cntlid = admin.controller().expect("connected").cntlid;
    let connect = |qid, cntlid, host| {
        let mut queue = open(&subsystem, qid, 15, now).expect("accepted");
        let data = connect_data(cntlid, NQN, host);
        say_connect(&mut queue, connect_command(qid, 15, 0), &data, now).result
    };
    assert_eq!(connect(2, cntlid, "nqn.other.host"), 1 << 16 | 512);
    assert_eq!(connect(2, cntlid + 1, HOST), 1 << 16 | 16);
    assert_eq!(connect(1, cntlid, HOST), 42, "the queue is there already");
    drop(io);
    assert_eq!(
        connect(1, cntlid, HOST),
        u64::from(cntlid),
        "and may come again when it has ended"
    );
    drop(admin);
    assert_eq!(
        connect(2, cntlid, HOST),
        1 << 16 | 16,
        "the controller ends with its admin queue"
    );
}

#[test]
fn queues_are_refused_before_they_exist() {
    let now = Instant::now();
    let subsystem = subsystem();
    let refused = |qid, hsqsize| open(&subsystem, qid, hsqsize, now).err();
    assert_eq!(refused(0, 31), None);
    assert_eq!(refused(0, 32), Some(Refusal::InvalidQueueSize));
    assert_eq!(refused(0, 0), Some(Refusal::InvalidQueueSize));
    assert_eq!(refused(1, 127), None);
    assert_eq!(refused(1, 128), Some(Refusal::InvalidQueueSize));
    assert_eq!(refused(Limits::IO_QUEUES + 1, 15), Some(Refusal::InvalidQueueId));
}

#[test]
fn controllers_are_limited_and_their_numbers_used_again() {
    let now = Instant::now();
    let subsystem = subsystem();
    let mut all: Vec<Queue> = (0..Limits::CONTROLLERS)
        .map(|_| admin_queue(&subsystem, NQN, 0, now))
        .collect();
    let mut queue = open(&subsystem, 0, 31, now).expect("accepted");
    let data = connect_data(ConnectData::ANY_CONTROLLER, NQN, HOST);
    let answer = say_connect(&mut queue, connect_command(0, 31, 0), &data, now);
    assert_eq!(answer.status.code(), Status::CONNECT_BUSY);
    all.pop();
    let answer = say_connect(&mut queue, connect_command(0, 31, 0), &data, now);
    assert_eq!(answer.status, Status::SUCCESS);
}

#[test]
fn a_silent_host_is_given_up_and_one_that_is_alive_is_not() {
    let now = Instant::now();
    let after = |seconds| now + Duration::from_secs(seconds);
    let subsystem = subsystem();
    let mut admin = admin_queue(&subsystem, NQN, 5000, now);
    assert_eq!(admin.poll_timeout(), Some(after(5)));
    assert_eq!(admin.handle_timeout(after(4)), None);
    let alive = Command::new(admin::KEEP_ALIVE, 0).emit();
    assert_eq!(status_of(admin.handle(&alive, after(4))), Status::SUCCESS);
    assert_eq!(admin.handle_timeout(after(8)), None);
    assert!(admin.handle_timeout(after(9)).is_some());
    // A host may change its mind.
    let mut never = Command::new(admin::SET_FEATURES, 0);
    never.words[0] = u8::from(Feature::KeepAliveTimer).into();
    assert_eq!(status_of(admin.handle(&never.emit(), after(8))), Status::SUCCESS);
    assert_eq!(admin.poll_timeout(), None);
}

#[test]
fn a_connection_that_never_says_connect_is_ended() {
    let now = Instant::now();
    let mut queue = open(&subsystem(), 0, 31, now).expect("accepted");
    let until = queue.poll_timeout().expect("it does not wait for ever");
    assert!(until <= now + Duration::from_secs(3), "hosts say it at once");
    assert_eq!(queue.handle_timeout(until - Duration::from_millis(1)), None);
    assert!(queue.handle_timeout(until).is_some());
}

#[test]
fn without_being_enabled_a_controller_does_no_io() {
    let now = Instant::now();
    let subsystem = subsystem();
    let (mut admin, mut io) = queues(&subsystem, now);
    let set = |value| property(FabricsType::PropertySet, Property::Configuration, value).emit();
    assert_eq!(status_of(admin.handle(&set(0), now)), Status::SUCCESS);
    let read = transfer(nvm::READ, 0, 1, 512);
    assert_eq!(status_of(io.handle(&read, now)), Status::COMMAND_SEQUENCE_ERROR);
    // A page of 8 KiB.
    assert_eq!(
        status_of(admin.handle(&set(1 | 1 << 7), now)),
        Status::INVALID_FIELD
    );
    // The end is announced, and done at once.
    let shut_down = u64::from(Configuration::ENABLED.0) | 1 << 14;
    assert_eq!(status_of(admin.handle(&set(shut_down), now)), Status::SUCCESS);
    match admin.handle(
        &property(FabricsType::PropertyGet, Property::Status, 0).emit(),
        now,
    ) {
        Step::Respond(response) => assert_eq!(response.completion.result, 0b1001),
        other => panic!("{other:?}"),
    }
}

fn data_of(queue: &mut Queue, mut command: Command, length: u32, now: Instant) -> Vec<u8> {
    command.sgl = keyed(length);
    match queue.handle(&command.emit(), now) {
        Step::Transfer { data, .. } => data,
        other => panic!("{other:?}"),
    }
}

#[test]
fn identify_tells_who_and_how_large() {
    let now = Instant::now();
    let subsystem = subsystem();
    let mut admin = admin_queue(&subsystem, NQN, 0, now);
    let mut identify = Command::new(admin::IDENTIFY, 0);
    identify.words[0] = cns::CONTROLLER.into();
    let controller = IdentifyController::parse(&data_of(&mut admin, identify, 4096, now)).expect("4 KiB");
    assert_eq!(controller.subsystem_nqn, NQN);
    assert_eq!(controller.cntlid, admin.controller().expect("connected").cntlid);
    identify.words[0] = cns::NAMESPACE.into();
    identify.nsid = 1;
    let namespace = IdentifyNamespace::parse(&data_of(&mut admin, identify, 4096, now)).expect("4 KiB");
    assert_eq!((namespace.blocks, namespace.block_shift), (BLOCKS, 9));
    identify.nsid = 2;
    identify.sgl = keyed(4096);
    assert_eq!(
        status_of(admin.handle(&identify.emit(), now)),
        Status::INVALID_NAMESPACE
    );
    identify.nsid = 1;
    identify.sgl = keyed(4095);
    assert_eq!(
        status_of(admin.handle(&identify.emit(), now)),
        Status::SGL_LENGTH_INVALID
    );
}

#[test]
fn queues_beyond_the_limit_are_not_given() {
    let now = Instant::now();
    let subsystem = subsystem();
    let mut admin = admin_queue(&subsystem, NQN, 0, now);
    let mut command = Command::new(admin::SET_FEATURES, 0);
    command.words[0] = u8::from(Feature::NumberOfQueues).into();
    command.words[1] = 3 | 0xffff << 16;
    match admin.handle(&command.emit(), now) {
        Step::Respond(response) => assert_eq!(response.completion.result, 3 | 15 << 16),
        other => panic!("{other:?}"),
    }
}

#[test]
fn discovery_tells_where_the_subsystem_is_and_has_no_disk() {
    let now = Instant::now();
    let subsystem = subsystem();
    let mut admin = admin_queue(&subsystem, DISCOVERY_NQN, 0, now);
    let mut log = Command::new(admin::GET_LOG_PAGE, 0);
    log.words[0] = 0x70 | (4096 / 4 - 1) << 16;
    let page = data_of(&mut admin, log, 4096, now);
    let found = DiscoveryEntry::list(&page);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].subsystem_nqn.as_str(), found[0].port), (NQN, 4420));
    // In parts, as Linux asks for it, and not from beyond its end.
    log.words[2] = 1024;
    assert_eq!(data_of(&mut admin, log, 4096, now), page[1024..]);
    log.words[3] = 1;
    log.sgl = keyed(4096);
    assert_eq!(status_of(admin.handle(&log.emit(), now)), Status::INVALID_FIELD);
    let mut identify = Command::new(admin::IDENTIFY, 1);
    identify.sgl = keyed(4096);
    assert_eq!(
        status_of(admin.handle(&identify.emit(), now)),
        Status::INVALID_FIELD
    );
    let cntlid = admin.controller().expect("connected").cntlid;
    let mut io = open(&subsystem, 1, 15, now).expect("accepted");
    let data = connect_data(cntlid, NQN, HOST);
    let answer = say_connect(&mut io, connect_command(1, 15, 0), &data, now);
    assert_eq!(answer.status.code(), Status::CONNECT_INVALID_PARAMETER);
}

#[test]
fn event_requests_are_held_up_to_the_limit() {
    let now = Instant::now();
    let subsystem = subsystem();
    let mut admin = admin_queue(&subsystem, NQN, 0, now);
    let request = Command::new(admin::ASYNC_EVENT_REQUEST, 0).emit();
    for _ in 0..Limits::EVENTS {
        assert_eq!(admin.handle(&request, now), Step::Hold);
    }
    assert_eq!(status_of(admin.handle(&request, now)), Status::ASYNC_EVENT_LIMIT);
}

#[test]
fn what_is_not_known_is_refused_by_the_status_that_says_so() {
    let now = Instant::now();
    let subsystem = subsystem();
    let (mut admin, mut io) = queues(&subsystem, now);
    for opcode in [0x05, 0x01, 0x80, 0xff] {
        assert_eq!(
            status_of(admin.handle(&Command::new(opcode, 0).emit(), now)),
            Status::INVALID_OPCODE
        );
    }
    assert_eq!(
        status_of(io.handle(&Command::new(0x09, 1).emit(), now)),
        Status::INVALID_OPCODE
    );
    assert_eq!(
        status_of(io.handle(&Command::new(nvm::READ, 2).emit(), now)),
        Status::INVALID_NAMESPACE
    );
    let mut fused = Command::new(nvm::FLUSH, 1);
    assert!(matches!(io.handle(&fused.emit(), now), Step::DiskFlush { .. }));
    fused.flags |= 1;
    assert_eq!(status_of(io.handle(&fused.emit(), now)), Status::INVALID_FIELD);
    assert!(matches!(io.handle(&[0; 63], now), Step::End(_)));
}

#[test]
fn the_head_of_the_queue_goes_round() {
    let now = Instant::now();
    let subsystem = subsystem();
    let (_admin, mut io) = queues(&subsystem, now);
    let heads: Vec<u16> = (0..17)
        .map(|_| match io.handle(&Command::new(0x99, 1).emit(), now) {
            Step::Respond(response) => response.completion.sq_head,
            other => panic!("{other:?}"),
        })
        .collect();
    // Connect was the first of 16 entries.
    assert_eq!(heads[..3], [2, 3, 4]);
    assert_eq!(heads[13..], [15, 0, 1, 2]);
}
