//! Commands of the admin queue.

use super::{Controller, Data, Limits, Pending, Queue, Step, has_namespace};
use crate::wire::{
    ControllerKind, DiscoveryEntry, Feature, IDENTIFY_LENGTH, IdentifyController, Status, admin, cns,
    discovery_log, namespace_descriptors, namespace_list,
};
use std::time::{Duration, Instant};

/// The step in which keep-alive timeouts count, in units of 100 ms.
const KEEP_ALIVE_STEP: u16 = 10;

/// The number that means all namespaces.
const ALL_NAMESPACES: u32 = u32::MAX;

/// Log pages.
const LOG_ERRORS: u8 = 0x01;
const LOG_HEALTH: u8 = 0x02;
const LOG_FIRMWARE: u8 = 0x03;
const LOG_DISCOVERY: u8 = 0x70;

impl Queue {
    pub(super) fn handle_admin(
        &mut self,
        controller: &Controller,
        pending: Pending,
        data: &Data<'_>,
        now: Instant,
    ) -> Step {
        let opcode = pending.command.opcode;
        // Before it is enabled, a controller only identifies itself.
        if !controller.is_enabled() && !matches!(opcode, admin::IDENTIFY | admin::KEEP_ALIVE) {
            return self.refuse(pending, Status::COMMAND_SEQUENCE_ERROR);
        }
        match opcode {
            admin::IDENTIFY => self.identify(controller, pending, data),
            admin::GET_LOG_PAGE => self.get_log_page(controller.kind, pending, data),
            admin::SET_FEATURES => self.set_features(controller, pending, now),
            admin::GET_FEATURES => self.get_features(controller, pending),
            admin::ASYNC_EVENT_REQUEST => self.hold_event_request(pending),
            // A command that cannot be taken back any more: the result says that it was not.
            admin::ABORT => self.succeed(&pending, 1),
            admin::KEEP_ALIVE => self.succeed(&pending, 0),
            _ => self.refuse(pending, Status::INVALID_OPCODE),
        }
    }

    fn identify(&mut self, controller: &Controller, pending: Pending, data: &Data<'_>) -> Step {
        let nsid = pending.command.nsid;
        let namespace = *self.subsystem.namespace();
        let bytes = match (pending.command.words[0] as u8, has_namespace(controller.kind)) {
            (cns::CONTROLLER, _) => Ok(self.identify_controller(controller).emit()),
            (cns::NAMESPACE, true) if nsid == 1 => Ok(namespace.emit()),
            // What all namespaces have in common: nothing to tell.
            (cns::NAMESPACE, true) if nsid == ALL_NAMESPACES => Ok([0; IDENTIFY_LENGTH]),
            (cns::NAMESPACE_LIST, true) if nsid < ALL_NAMESPACES - 1 => Ok(namespace_list(nsid, 1)),
            (cns::NAMESPACE_DESCRIPTORS, true) if nsid == 1 => Ok(namespace_descriptors(&namespace.uuid)),
            (cns::NAMESPACE | cns::NAMESPACE_LIST | cns::NAMESPACE_DESCRIPTORS, true) => {
                Err(Status::INVALID_NAMESPACE)
            }
            _ => Err(Status::INVALID_FIELD),
        };
        match bytes {
            Ok(bytes) => self.transfer(pending, data, bytes.to_vec(), IDENTIFY_LENGTH),
            Err(status) => self.refuse(pending, status),
        }
    }

    fn identify_controller(&self, controller: &Controller) -> IdentifyController {
        let subsystem_nqn = match controller.kind {
            ControllerKind::Io => self.subsystem.nqn().as_str(),
            ControllerKind::Discovery => crate::DISCOVERY_NQN,
        };
        IdentifyController {
            serial: self.subsystem.serial(),
            model: "nonic".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            mdts: Limits::MDTS,
            cntlid: controller.cntlid,
            kind: controller.kind,
            kas: KEEP_ALIVE_STEP,
            aerl: Limits::EVENTS - 1,
            maxcmd: Limits::QUEUE_ENTRIES,
            namespaces: u32::from(has_namespace(controller.kind)),
            subsystem_nqn: subsystem_nqn.to_owned(),
            command_capsule: Limits::CAPSULE as u32,
        }
    }

    fn get_log_page(&mut self, kind: ControllerKind, pending: Pending, data: &Data<'_>) -> Step {
        let [first, second, offset_low, offset_high, ..] = pending.command.words;
        // Words, less one.
        let words = u64::from(first >> 16) | u64::from(second & 0xffff) << 16;
        let asked = (words + 1) * 4;
        let page = match (first as u8, kind) {
            (LOG_DISCOVERY, ControllerKind::Discovery) => self.discovery_page(),
            (LOG_ERRORS, ControllerKind::Io) => vec![0; 64],
            (LOG_HEALTH, ControllerKind::Io) => health(),
            (LOG_FIRMWARE, ControllerKind::Io) => firmware(),
            _ => return self.refuse(pending, Status::INVALID_LOG_PAGE),
        };
        let offset = u64::from(offset_low) | u64::from(offset_high) << 32;
        let rest = usize::try_from(offset).ok().and_then(|offset| page.get(offset..));
        let (Some(rest), true) = (rest, asked <= Limits::TRANSFER as u64) else {
            return self.refuse(pending, Status::INVALID_FIELD);
        };
        let told = rest[..rest.len().min(asked as usize)].to_vec();
        self.transfer(pending, data, told, asked as usize)
    }

    fn discovery_page(&self) -> Vec<u8> {
        let entry = DiscoveryEntry {
            address: self.place.address,
            port: self.place.port,
            subsystem_nqn: self.subsystem.nqn().as_str().to_owned(),
            provider: self.place.provider,
            admin_queue: Limits::ADMIN_ENTRIES,
        };
        // It never changes as long as the target lives.
        discovery_log(1, &[entry])
    }

    fn set_features(&mut self, controller: &Controller, pending: Pending, now: Instant) -> Step {
        let [number, value, ..] = pending.command.words;
        match Feature::from(number as u8) {
            Feature::NumberOfQueues => {
                // Less one, in both halves. All that a host asks for beyond is not given.
                let given = |asked: u32| (asked & 0xffff).min(u32::from(Limits::IO_QUEUES) - 1);
                let result = given(value) | given(value >> 16) << 16;
                self.succeed(&pending, result.into())
            }
            Feature::KeepAliveTimer => {
                controller.set_kato(Duration::from_millis(value.into()));
                controller.touch(now);
                self.succeed(&pending, 0)
            }
            // No event ever happens, so it does not matter which are wanted; and the cache is the operating system's.
            Feature::AsyncEvents => self.succeed(&pending, 0),
            Feature::VolatileWriteCache if value & 1 == 1 => self.succeed(&pending, 0),
            _ => self.refuse(pending, Status::INVALID_FIELD),
        }
    }

    fn get_features(&mut self, controller: &Controller, pending: Pending) -> Step {
        let queues = u64::from(Limits::IO_QUEUES) - 1;
        let value = match Feature::from(pending.command.words[0] as u8) {
            Feature::NumberOfQueues => queues | queues << 16,
            Feature::KeepAliveTimer => u64::try_from(controller.kato().as_millis()).unwrap_or(u64::MAX),
            Feature::VolatileWriteCache => 1,
            Feature::AsyncEvents => 0,
            Feature::Other(_) => return self.refuse(pending, Status::INVALID_FIELD),
        };
        self.succeed(&pending, value)
    }

    /// Nothing ever happens that a host must be told, so it waits until the controller ends.
    fn hold_event_request(&mut self, pending: Pending) -> Step {
        if self.held_events >= Limits::EVENTS {
            return self.refuse(pending, Status::ASYNC_EVENT_LIMIT);
        }
        self.held_events += 1;
        Step::Hold
    }

    /// Answers with data, for which the host must have room for as much as it asked for.
    fn transfer(&mut self, pending: Pending, data: &Data<'_>, bytes: Vec<u8>, room: usize) -> Step {
        match data.room(room) {
            Ok(to) => Step::Transfer {
                data: bytes,
                to,
                response: self.response(&pending, Status::SUCCESS, 0),
            },
            Err(status) => self.refuse(pending, status),
        }
    }
}

/// The health of a disk that does not wear out: all of its spare blocks are there, at 20 °C.
fn health() -> Vec<u8> {
    let mut page = vec![0; 512];
    page[1..3].copy_from_slice(&293_u16.to_le_bytes());
    page[3] = 100;
    page
}

/// The one revision there is, in the first slot.
fn firmware() -> Vec<u8> {
    let mut page = vec![0; 512];
    page[0] = 1;
    let revision = env!("CARGO_PKG_VERSION").as_bytes();
    let length = revision.len().min(8);
    page[8..16].fill(b' ');
    page[8..8 + length].copy_from_slice(&revision[..length]);
    page
}
