//! A small initiator: finds subsystems, and reads and writes one, a command at a time.
//!
//! It is there to try a target and to show how little the other side of NVMe over Fabrics is. It keeps one command under way per
//! queue, sends no Keep Alive by itself and does not reconnect: a host that needs more is Linux's `nvme-rdma`.
//!
//! Read first: [`Initiator`], then [`HostQueue::execute`].

use crate::controller::Limits;
use crate::wire::{
    COMPLETION_LENGTH, CONNECT_DATA_LENGTH, CmRequest, Command, Completion, Configuration, ConnectData,
    ConnectFields, DISCOVERY_HEADER, DiscoveryEntry, FabricsType, IDENTIFY_LENGTH, IdentifyController,
    IdentifyNamespace, KeyedSgl, Nqn, Property, PropertyFields, Sgl, Status, admin, cns, nvm,
};
use crate::{DISCOVERY_NQN, wire};
use nonic::{
    Access, ConnectError, Connection, Device, Domain, Exposed, MemoryError, Rc, RequestFailed, connect,
};
use std::net::SocketAddr;
use std::time::Duration;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitiatorError {
    /// There is no connection to be had.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection has ended.
    #[error("the connection has ended: {0}")]
    Ended(#[from] RequestFailed),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The target refused a command.
    #[error("the target refused the command: {0}")]
    Status(Status),
    /// The target does not answer.
    #[error("the target has not answered for {} s", PATIENCE.as_secs())]
    Silent,
    /// The target answered something that makes no sense.
    #[error("the target's answer makes no sense: {0}")]
    Nonsense(&'static str),
    /// The caller asked for something that no command can do.
    #[error("{0}")]
    Misuse(&'static str),
}

type Result<T> = std::result::Result<T, InitiatorError>;

/// The data that goes with a command.
#[derive(Copy, Clone, Debug)]
pub enum Payload<'a> {
    /// None.
    None,
    /// Sent behind the command, in the same capsule.
    InCapsule(&'a [u8]),
    /// Kept in memory of ours that the target reads.
    ToTarget(&'a [u8]),
    /// Room in memory of ours that the target writes.
    FromTarget(usize),
}

/// One queue: an RDMA connection, and a buffer that the target may read and write.
#[derive(Debug)]
pub struct HostQueue {
    connection: Connection<Rc>,
    domain: Domain,
    buffer: Exposed,
    qid: u16,
    next_cid: u16,
    patience: Duration,
}

impl HostQueue {
    /// Connects the RDMA side of queue `qid`, of `entries` entries.
    pub fn open(device: &Device, target: SocketAddr, qid: u16, entries: u16) -> Result<Self> {
        let domain = device.domain();
        let request = CmRequest {
            qid,
            hrqsize: entries,
            hsqsize: entries.saturating_sub(1),
            cntlid: 0,
        };
        let connection =
            connect(domain.pair_builder::<Rc>(), target, &request.emit())?.wait_within(PATIENCE)?;
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let buffer = domain.lease(Limits::TRANSFER)?.expose(rights)?;
        Ok(HostQueue {
            connection,
            domain,
            buffer,
            qid,
            next_cid: 0,
            patience: PATIENCE,
        })
    }

    /// Waits for an answer no longer than this.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sends a command and waits for its answer, whatever its status; with the data, if some was asked for.
    pub fn execute(&mut self, command: Command, payload: Payload<'_>) -> Result<(Completion, Vec<u8>)> {
        let (sgl, behind) = self.describe(payload)?;
        let mut command = command;
        command.cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        command.sgl = sgl.emit();
        let mut capsule = command.emit().to_vec();
        capsule.extend_from_slice(behind);
        let completion = self.exchange(&capsule)?;
        if completion.cid != command.cid {
            return Err(InitiatorError::Nonsense("it is for another command"));
        }
        let mut data = Vec::new();
        if let Payload::FromTarget(length) = payload {
            data.resize(length, 0);
            self.buffer.read_at(0, &mut data)?;
        }
        Ok((completion, data))
    }

    /// Sends a capsule as it is, sensible or not, and waits for an answer.
    pub fn exchange(&mut self, capsule: &[u8]) -> Result<Completion> {
        let answer = self.connection.recv(self.domain.lease(COMPLETION_LENGTH)?);
        self.connection.send(self.domain.lease_from(capsule)?).wait()?;
        let received = match answer.wait_within(self.patience) {
            Ok(received) => received?,
            Err(_) => return Err(InitiatorError::Silent),
        };
        Completion::parse(received.bytes()).ok_or(InitiatorError::Nonsense("it is too short"))
    }

    /// Memory of ours as a descriptor, with the data in it.
    fn describe<'a>(&self, payload: Payload<'a>) -> Result<(Sgl, &'a [u8])> {
        let keyed = |length: usize| {
            let remote = self.buffer.remote();
            Sgl::Keyed(KeyedSgl {
                address: remote.va,
                length: length as u32,
                key: remote.rkey,
                invalidate: false,
            })
        };
        match payload {
            Payload::None => Ok((keyed(0), &[])),
            Payload::InCapsule(data) => {
                let length = data.len() as u32;
                Ok((Sgl::InCapsule { offset: 0, length }, data))
            }
            Payload::ToTarget(data) => {
                self.buffer.write_at(0, data)?;
                Ok((keyed(data.len()), &[]))
            }
            Payload::FromTarget(length) => {
                if length > self.buffer.len() {
                    return Err(InitiatorError::Misuse("more than a command can transfer"));
                }
                Ok((keyed(length), &[]))
            }
        }
    }

    /// The same as [`HostQueue::execute`], and any status but success is an error.
    fn succeed(&mut self, command: Command, payload: Payload<'_>) -> Result<(u64, Vec<u8>)> {
        let (completion, data) = self.execute(command, payload)?;
        match completion.status {
            Status::SUCCESS => Ok((completion.result, data)),
            status => Err(InitiatorError::Status(status)),
        }
    }

    /// Says Connect; the number of the controller.
    pub fn connect(&mut self, subsystem: &str, cntlid: u16, entries: u16, kato: Duration) -> Result<u16> {
        let data = ConnectData {
            // Any constant is as good as another: it only has to be the same for all queues of a host.
            host_id: *b"nonic initiator.",
            cntlid,
            subsystem_nqn: subsystem.to_owned(),
            host_nqn: "nqn.2026-11.org.nonic-rdma:initiator".to_owned(),
        };
        let command = Command::connect(&ConnectFields {
            record_format: 0,
            qid: self.qid,
            sqsize: entries.saturating_sub(1),
            attributes: 0,
            kato_ms: u32::try_from(kato.as_millis()).unwrap_or(u32::MAX),
        });
        let data: [u8; CONNECT_DATA_LENGTH] = data.emit();
        let (result, _) = self.succeed(command, Payload::ToTarget(&data))?;
        Ok(result as u16)
    }

    fn set_property(&mut self, property: Property, value: u64) -> Result<()> {
        let fields = PropertyFields {
            is_wide: property.is_wide(),
            offset: property.offset(),
            value,
        };
        self.succeed(
            Command::property(FabricsType::PropertySet, &fields),
            Payload::None,
        )?;
        Ok(())
    }

    /// What a property is.
    pub fn property(&mut self, property: Property) -> Result<u64> {
        let fields = PropertyFields {
            is_wide: property.is_wide(),
            offset: property.offset(),
            value: 0,
        };
        let command = Command::property(FabricsType::PropertyGet, &fields);
        self.succeed(command, Payload::None).map(|(value, _)| value)
    }

    fn identify(&mut self, what: u8, nsid: u32) -> Result<Vec<u8>> {
        let mut command = Command::new(admin::IDENTIFY, nsid);
        command.words[0] = what.into();
        let (_, data) = self.succeed(command, Payload::FromTarget(IDENTIFY_LENGTH))?;
        Ok(data)
    }

    /// An admin queue with an enabled controller of this subsystem.
    fn admin(device: &Device, target: SocketAddr, subsystem: &str, kato: Duration) -> Result<(Self, u16)> {
        let mut queue = Self::open(device, target, 0, Limits::ADMIN_ENTRIES)?;
        let any = ConnectData::ANY_CONTROLLER;
        let cntlid = queue.connect(subsystem, any, Limits::ADMIN_ENTRIES, kato)?;
        queue.set_property(Property::Configuration, Configuration::ENABLED.0.into())?;
        if queue.property(Property::Status)? & 1 == 0 {
            return Err(InitiatorError::Nonsense("the controller is not ready at once"));
        }
        Ok((queue, cntlid))
    }
}

/// Asks the discovery service at an address which subsystems there are.
pub fn discover(device: &Device, target: SocketAddr) -> Result<Vec<DiscoveryEntry>> {
    let (mut queue, _) = HostQueue::admin(device, target, DISCOVERY_NQN, Duration::ZERO)?;
    // The header and up to 15 entries: more than one target of this crate has.
    let length = 16 * DISCOVERY_HEADER;
    let mut command = Command::new(admin::GET_LOG_PAGE, 0);
    command.words[0] = 0x70 | (length as u32 / 4 - 1) << 16;
    let (_, page) = queue.succeed(command, Payload::FromTarget(length))?;
    Ok(DiscoveryEntry::list(&page))
}

/// A host of one subsystem, with an admin queue and an I/O queue. Dropping it disconnects.
#[derive(Debug)]
pub struct Initiator {
    /// The admin queue.
    pub admin: HostQueue,
    /// The I/O queue.
    pub io: HostQueue,
    /// The controller's identity and limits.
    pub controller: IdentifyController,
    /// How large the namespace is.
    pub namespace: IdentifyNamespace,
}

impl Initiator {
    /// Entries of the I/O queue.
    const ENTRIES: u16 = 16;

    /// Connects. Without a Keep Alive within `kato` the target gives the host up; zero is for ever.
    pub fn connect(device: &Device, target: SocketAddr, subsystem: &Nqn, kato: Duration) -> Result<Self> {
        let (mut admin, cntlid) = HostQueue::admin(device, target, subsystem.as_str(), kato)?;
        let controller = IdentifyController::parse(&admin.identify(cns::CONTROLLER, 0)?)
            .ok_or(InitiatorError::Nonsense("it is too short"))?;
        let namespace = IdentifyNamespace::parse(&admin.identify(cns::NAMESPACE, 1)?)
            .ok_or(InitiatorError::Nonsense("it is too short"))?;
        if !(9..=16).contains(&namespace.block_shift) {
            return Err(InitiatorError::Nonsense("the length of a block"));
        }
        let mut queues = Command::new(admin::SET_FEATURES, 0);
        queues.words[0] = u8::from(wire::Feature::NumberOfQueues).into();
        admin.succeed(queues, Payload::None)?;
        let mut io = HostQueue::open(device, target, 1, Self::ENTRIES)?;
        io.connect(subsystem.as_str(), cntlid, Self::ENTRIES, Duration::ZERO)?;
        Ok(Initiator {
            admin,
            io,
            controller,
            namespace,
        })
    }

    /// Bytes of a block.
    pub fn block_length(&self) -> usize {
        1 << self.namespace.block_shift
    }

    /// Reads `blocks` blocks.
    pub fn read(&mut self, first: u64, blocks: u16) -> Result<Vec<u8>> {
        let length = usize::from(blocks) * self.block_length();
        let command = Command::transfer(nvm::READ, 1, first, blocks);
        self.io
            .succeed(command, Payload::FromTarget(length))
            .map(|(_, data)| data)
    }

    /// Writes whole blocks; short data goes with the command, other data is fetched by the target.
    pub fn write(&mut self, first: u64, data: &[u8]) -> Result<()> {
        let blocks = u16::try_from(data.len() / self.block_length()).unwrap_or(u16::MAX);
        if blocks == 0 || data.len() != usize::from(blocks) * self.block_length() {
            return Err(InitiatorError::Misuse("only whole blocks can be written"));
        }
        let in_capsule = (self.controller.command_capsule as usize).saturating_sub(wire::COMMAND_LENGTH);
        let payload = match data.len() <= in_capsule {
            true => Payload::InCapsule(data),
            false => Payload::ToTarget(data),
        };
        let command = Command::transfer(nvm::WRITE, 1, first, blocks);
        self.io.succeed(command, payload).map(drop)
    }

    /// Brings everything written before to stable storage.
    pub fn flush(&mut self) -> Result<()> {
        let command = Command::new(nvm::FLUSH, 1);
        self.io.succeed(command, Payload::None).map(drop)
    }

    /// Says that this host is alive.
    pub fn keep_alive(&mut self) -> Result<()> {
        let command = Command::new(admin::KEEP_ALIVE, 0);
        self.admin.succeed(command, Payload::None).map(drop)
    }
}
