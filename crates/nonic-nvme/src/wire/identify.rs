//! The structures that Identify answers: the controller's identity and limits, and the size of the namespace.

use super::{IDENTIFY_LENGTH, put, put_text, read_u16, read_u32, read_u64, text};

/// Which structure Identify is asked for.
pub mod cns {
    /// The namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// The controller.
    pub const CONTROLLER: u8 = 0x01;
    /// The numbers of the namespaces there are.
    pub const NAMESPACE_LIST: u8 = 0x02;
    /// The names that a namespace keeps for ever.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
}

/// What a controller is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ControllerKind {
    /// Reading and writing.
    Io,
    /// Telling where subsystems are.
    Discovery,
}

/// The controller's identity and limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdentifyController {
    /// The subsystem's serial number, up to 20 characters.
    pub serial: String,
    /// The model, up to 40 characters.
    pub model: String,
    /// The firmware's revision, up to 8 characters.
    pub firmware: String,
    /// The longest transfer, as a power of two of 4 KiB.
    pub mdts: u8,
    /// Its number.
    pub cntlid: u16,
    /// What it is for.
    pub kind: ControllerKind,
    /// The steps in which keep-alive timeouts are counted, in units of 100 ms.
    pub kas: u16,
    /// Event requests that may wait, less one.
    pub aerl: u8,
    /// Commands that may be under way on one queue.
    pub maxcmd: u16,
    /// How many namespaces there are.
    pub namespaces: u32,
    /// The subsystem's name.
    pub subsystem_nqn: String,
    /// Bytes of a command of an I/O queue with data in its capsule.
    pub command_capsule: u32,
}

/// Supported: one descriptor, of any alignment; keyed; data in the capsule.
const SGLS: u32 = 1 | 1 << 2 | 1 << 20;

impl IdentifyController {
    /// Its bytes.
    pub fn emit(&self) -> [u8; IDENTIFY_LENGTH] {
        let mut bytes = [0; IDENTIFY_LENGTH];
        put_text(&mut bytes, 4, 20, &self.serial, b' ');
        put_text(&mut bytes, 24, 40, &self.model, b' ');
        put_text(&mut bytes, 64, 8, &self.firmware, b' ');
        // Several ports, several controllers.
        bytes[76] = 0b11;
        bytes[77] = self.mdts;
        put(&mut bytes, 78, &self.cntlid.to_le_bytes());
        put(&mut bytes, 80, &super::VERSION_1_4.to_le_bytes());
        bytes[111] = match self.kind {
            ControllerKind::Io => 1,
            ControllerKind::Discovery => 2,
        };
        // Abort commands at once, less one.
        bytes[258] = 3;
        bytes[259] = self.aerl;
        // A part of a log page may be asked for.
        bytes[261] = 1 << 2;
        put(&mut bytes, 320, &self.kas.to_le_bytes());
        // Entries of 64 and 16 bytes, at least and at most.
        bytes[512] = 0x66;
        bytes[513] = 0x44;
        put(&mut bytes, 514, &self.maxcmd.to_le_bytes());
        put(&mut bytes, 516, &self.namespaces.to_le_bytes());
        // There is a volatile cache: the operating system's.
        bytes[525] = u8::from(self.kind == ControllerKind::Io);
        put(&mut bytes, 536, &SGLS.to_le_bytes());
        put_text(&mut bytes, 768, 255, &self.subsystem_nqn, 0);
        // In units of 16 bytes; a completion has 16.
        put(&mut bytes, 1792, &(self.command_capsule / 16).to_le_bytes());
        put(&mut bytes, 1796, &1_u32.to_le_bytes());
        // Data follows the command at once, and one descriptor is all there is.
        bytes[1803] = 1;
        bytes
    }

    /// Reads what the initiator needs; nothing if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<IDENTIFY_LENGTH>()?;
        Some(IdentifyController {
            serial: text(&bytes[4..24]),
            model: text(&bytes[24..64]),
            firmware: text(&bytes[64..72]),
            mdts: bytes[77],
            cntlid: read_u16(bytes, 78),
            kind: match bytes[111] {
                2 => ControllerKind::Discovery,
                _ => ControllerKind::Io,
            },
            kas: read_u16(bytes, 320),
            aerl: bytes[259],
            maxcmd: read_u16(bytes, 514),
            namespaces: read_u32(bytes, 516),
            subsystem_nqn: text(&bytes[768..1024]),
            command_capsule: read_u32(bytes, 1792).saturating_mul(16),
        })
    }
}

/// How large a namespace is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IdentifyNamespace {
    /// Its blocks.
    pub blocks: u64,
    /// The length of a block, as a power of two.
    pub block_shift: u8,
    /// Its name for ever.
    pub uuid: [u8; 16],
}

impl IdentifyNamespace {
    /// Its bytes.
    pub fn emit(&self) -> [u8; IDENTIFY_LENGTH] {
        let mut bytes = [0; IDENTIFY_LENGTH];
        for at in [0, 8, 16] {
            put(&mut bytes, at, &self.blocks.to_le_bytes());
        }
        // Several controllers have it.
        bytes[30] = 1;
        put(&mut bytes, 104, &self.uuid);
        bytes[130] = self.block_shift;
        bytes
    }

    /// Reads it; nothing if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<IDENTIFY_LENGTH>()?;
        let format = usize::from(bytes[26] & 15);
        Some(IdentifyNamespace {
            blocks: read_u64(bytes, 0),
            block_shift: bytes[128 + 4 * format + 2],
            uuid: *bytes[104..].first_chunk()?,
        })
    }
}

/// The numbers of namespaces above `after`, of which there are `1..=count`.
pub fn namespace_list(after: u32, count: u32) -> [u8; IDENTIFY_LENGTH] {
    let mut bytes = [0; IDENTIFY_LENGTH];
    let numbers = (after.saturating_add(1).max(1)..=count).take(IDENTIFY_LENGTH / 4);
    for (index, number) in numbers.filter(|number| *number > after).enumerate() {
        put(&mut bytes, 4 * index, &number.to_le_bytes());
    }
    bytes
}

/// The names of a namespace: its UUID, also as the older NGUID.
pub fn namespace_descriptors(uuid: &[u8; 16]) -> [u8; IDENTIFY_LENGTH] {
    const NGUID: u8 = 2;
    const UUID: u8 = 3;
    let mut bytes = [0; IDENTIFY_LENGTH];
    for (index, kind) in [NGUID, UUID].into_iter().enumerate() {
        let at = 20 * index;
        bytes[at] = kind;
        bytes[at + 1] = 16;
        put(&mut bytes, at + 4, uuid);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller() -> IdentifyController {
        IdentifyController {
            serial: "0123".to_owned(),
            model: "nonic".to_owned(),
            firmware: "0.1.0".to_owned(),
            mdts: 8,
            cntlid: 5,
            kind: ControllerKind::Io,
            kas: 10,
            aerl: 3,
            maxcmd: 128,
            namespaces: 1,
            subsystem_nqn: "nqn.2026-11.org.example:disk".to_owned(),
            command_capsule: 64 + 8192,
        }
    }

    /// What Linux's host refuses a target without.
    #[test]
    fn the_fields_that_a_fabric_needs_are_in_their_place() {
        let bytes = controller().emit();
        assert_eq!(read_u16(&bytes, 320), 10, "keep-alive granularity");
        assert_eq!(read_u16(&bytes, 514), 128, "commands at once");
        assert_eq!(read_u32(&bytes, 536), 0x0010_0005, "descriptors");
        assert_eq!(read_u32(&bytes, 1792), 516, "a capsule of an I/O queue");
        assert_eq!(read_u32(&bytes, 1796), 1, "a capsule with a completion");
        assert_eq!(read_u16(&bytes, 1800), 0, "where data in a capsule begins");
        assert_eq!(&bytes[768..796], b"nqn.2026-11.org.example:disk");
        assert_eq!(IdentifyController::parse(&bytes), Some(controller()));
    }

    #[test]
    fn a_namespace_comes_back() {
        let namespace = IdentifyNamespace {
            blocks: 1 << 21,
            block_shift: 9,
            uuid: [3; 16],
        };
        assert_eq!(IdentifyNamespace::parse(&namespace.emit()), Some(namespace));
        assert_eq!(IdentifyNamespace::parse(&[0; 100]), None);
    }

    #[test]
    fn a_list_begins_behind_the_number_that_was_given() {
        assert_eq!(read_u32(&namespace_list(0, 1), 0), 1);
        assert_eq!(read_u32(&namespace_list(1, 1), 0), 0);
        assert_eq!(read_u32(&namespace_list(u32::MAX, u32::MAX), 0), 0);
    }
}
