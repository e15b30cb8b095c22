//! Commands of the fabric: Connect, Property Get and Property Set.

use super::{Data, Limits, Pending, Queue, Response, Role, Step, has_namespace};
use crate::DISCOVERY_NQN;
use crate::wire::{
    CONNECT_DATA_LENGTH, Capabilities, Configuration, ConnectData, ControllerKind, FabricsType, Property,
    Status, VERSION_1_4,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// In the attributes of Connect: the host does not want to be told the head of its queue.
const DISABLE_FLOW_CONTROL: u8 = 1 << 2;

/// Where in the command the fields of Connect are, for the answer that names a wrong one.
const QID_AT: u16 = 42;
const SQSIZE_AT: u16 = 44;

impl Queue {
    pub(super) fn handle_fabrics(&mut self, kind: FabricsType, pending: Pending, data: &Data<'_>) -> Step {
        match (kind, &self.role) {
            (FabricsType::Connect, Role::Unconnected { .. }) => self.handle_connect(pending, data),
            (FabricsType::PropertyGet, Role::Admin(_)) => self.property_get(pending),
            (FabricsType::PropertySet, Role::Admin(_)) => self.property_set(pending),
            (FabricsType::Other(_), _) => self.refuse(pending, Status::INVALID_OPCODE),
            // Connect a second time, or properties by a queue that has none.
            _ => self.refuse(pending, Status::COMMAND_SEQUENCE_ERROR),
        }
    }

    fn handle_connect(&mut self, pending: Pending, data: &Data<'_>) -> Step {
        let fields = pending.command.connect_fields();
        if fields.record_format != 0 {
            return self.refuse(pending, Status::CONNECT_FORMAT);
        }
        // The connection manager was told the same before, and made room for so many.
        if fields.qid != self.request.qid {
            return Step::Respond(self.wrong_parameter(&pending, Wrong::Command(QID_AT)));
        }
        if fields.sqsize == 0 || fields.sqsize > self.request.hsqsize {
            return Step::Respond(self.wrong_parameter(&pending, Wrong::Command(SQSIZE_AT)));
        }
        match data.source(CONNECT_DATA_LENGTH) {
            Ok(from) => Step::Fetch {
                from,
                length: CONNECT_DATA_LENGTH,
                pending,
            },
            Err(status) => self.refuse(pending, status),
        }
    }

    /// The data of a Connect command is there.
    pub fn handle_connect_data(&mut self, pending: Pending, bytes: &[u8], now: Instant) -> Response {
        let Some(data) = ConnectData::parse(bytes) else {
            return self.response(&pending, Status::SGL_LENGTH_INVALID.finally(), 0);
        };
        // Another Connect may have been faster.
        if !matches!(self.role, Role::Unconnected { .. }) {
            return self.response(&pending, Status::COMMAND_SEQUENCE_ERROR.finally(), 0);
        }
        let fields = pending.command.connect_fields();
        let role = match fields.qid {
            0 => self.connect_admin(&data, Duration::from_millis(fields.kato_ms.into()), now),
            qid => self.connect_io(&data, qid),
        };
        let role = match role {
            Ok(role) => role,
            Err(Problem::Wrong(wrong)) => return self.wrong_parameter(&pending, wrong),
            Err(Problem::Status(status)) => return self.response(&pending, status, 0),
        };
        self.sq_entries = fields.sqsize + 1;
        self.role = role;
        if fields.attributes & DISABLE_FLOW_CONTROL != 0 {
            self.flow_control = false;
            self.sq_head = u16::MAX;
        }
        let cntlid = self.controller().map_or(0, |controller| controller.cntlid);
        self.response(&pending, Status::SUCCESS, cntlid.into())
    }

    fn connect_admin(&self, data: &ConnectData, kato: Duration, now: Instant) -> Result<Role, Problem> {
        let kind = match data.subsystem_nqn.as_str() {
            DISCOVERY_NQN => ControllerKind::Discovery,
            name if name == self.subsystem.nqn().as_str() => ControllerKind::Io,
            _ => return Err(Problem::data(ConnectData::SUBSYSTEM_NQN_OFFSET)),
        };
        if data.cntlid != ConnectData::ANY_CONTROLLER {
            return Err(Problem::data(ConnectData::CNTLID_OFFSET));
        }
        if data.host_nqn.is_empty() {
            return Err(Problem::data(ConnectData::HOST_NQN_OFFSET));
        }
        let controller = self
            .subsystem
            .create(kind, &data.host_nqn, kato, now)
            .map_err(Problem::Status)?;
        Ok(Role::Admin(controller))
    }

    fn connect_io(&self, data: &ConnectData, qid: u16) -> Result<Role, Problem> {
        let found = self.subsystem.find(data.cntlid);
        let controller = found.ok_or(Problem::data(ConnectData::CNTLID_OFFSET))?;
        if data.subsystem_nqn != self.subsystem.nqn().as_str() || !has_namespace(controller.kind) {
            return Err(Problem::data(ConnectData::SUBSYSTEM_NQN_OFFSET));
        }
        if data.host_nqn != controller.host_nqn {
            return Err(Problem::data(ConnectData::HOST_NQN_OFFSET));
        }
        if !controller.is_enabled() {
            return Err(Problem::Status(Status::COMMAND_SEQUENCE_ERROR.finally()));
        }
        if !controller.claim(qid) {
            return Err(Problem::Wrong(Wrong::Command(QID_AT)));
        }
        Ok(Role::Io(Arc::clone(&controller)))
    }

    fn wrong_parameter(&mut self, pending: &Pending, wrong: Wrong) -> Response {
        let result = match wrong {
            Wrong::Command(offset) => u64::from(offset),
            Wrong::Data(offset) => u64::from(offset) | 1 << 16,
        };
        self.response(pending, Status::CONNECT_INVALID_PARAMETER.finally(), result)
    }

    fn property_get(&mut self, pending: Pending) -> Step {
        let fields = pending.command.property_fields();
        let Some(controller) = self.controller() else {
            return self.refuse(pending, Status::COMMAND_SEQUENCE_ERROR);
        };
        let capabilities = Capabilities {
            queue_entries: Limits::QUEUE_ENTRIES,
            timeout_halves: 15,
        };
        let value = match Property::at(fields.offset) {
            Some(property) if property.is_wide() != fields.is_wide => None,
            Some(Property::Capabilities) => Some(capabilities.value()),
            Some(Property::Version) => Some(VERSION_1_4.into()),
            Some(Property::Configuration) => Some(controller.configuration().0.into()),
            Some(Property::Status) => Some(controller.configuration().status().into()),
            None => None,
        };
        match value {
            Some(value) => self.succeed(&pending, value),
            None => self.refuse(pending, Status::INVALID_FIELD),
        }
    }

    fn property_set(&mut self, pending: Pending) -> Step {
        let fields = pending.command.property_fields();
        let configuration = Configuration(fields.value as u32);
        let is_configuration =
            Property::at(fields.offset) == Some(Property::Configuration) && !fields.is_wide;
        match self.controller() {
            Some(controller) if is_configuration && configuration.is_supported() => {
                controller.configure(configuration);
            }
            _ => return self.refuse(pending, Status::INVALID_FIELD),
        }
        self.succeed(&pending, 0)
    }
}

/// Which parameter of Connect is wrong, by its place.
enum Wrong {
    Command(u16),
    Data(u16),
}

enum Problem {
    Wrong(Wrong),
    Status(Status),
}

impl Problem {
    fn data(offset: u16) -> Self {
        Problem::Wrong(Wrong::Data(offset))
    }
}
