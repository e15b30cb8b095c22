//! The data of a Connect command: the host's names, and the subsystem and controller that it wants.

use super::{CONNECT_DATA_LENGTH, put, read_u16, text};

/// An NVMe Qualified Name: the name of a host or of a subsystem, at most 223 bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Nqn(String);

impl Nqn {
    /// The longest name, in bytes.
    pub const LONGEST: usize = 223;

    /// Takes a name that begins with `nqn.` and is not too long.
    pub fn new(name: &str) -> Option<Self> {
        let printable = name.bytes().all(|byte| byte.is_ascii_graphic());
        let taken = name.starts_with("nqn.") && name.len() <= Self::LONGEST && printable;
        taken.then(|| Nqn(name.to_owned()))
    }

    /// It as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Nqn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The data of a Connect command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectData {
    /// The host, as a number of its own.
    pub host_id: [u8; 16],
    /// Which controller: that of the admin queue, or `0xffff` for a new one.
    pub cntlid: u16,
    /// Which subsystem, as it was written.
    pub subsystem_nqn: String,
    /// The host's name, as it was written.
    pub host_nqn: String,
}

impl ConnectData {
    /// The number that asks for a new controller.
    pub const ANY_CONTROLLER: u16 = 0xffff;
    /// Where the controller's number stands.
    pub const CNTLID_OFFSET: u16 = 16;
    /// Where the subsystem's name stands.
    pub const SUBSYSTEM_NQN_OFFSET: u16 = 256;
    /// Where the host's name stands.
    pub const HOST_NQN_OFFSET: u16 = 512;

    /// Reads it; nothing if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<CONNECT_DATA_LENGTH>()?;
        Some(ConnectData {
            host_id: *bytes.first_chunk()?,
            cntlid: read_u16(bytes, 16),
            subsystem_nqn: text(&bytes[256..512]),
            host_nqn: text(&bytes[512..768]),
        })
    }

    /// Its bytes. Of a name, 255 bytes are written.
    pub fn emit(&self) -> [u8; CONNECT_DATA_LENGTH] {
        let mut bytes = [0; CONNECT_DATA_LENGTH];
        put(&mut bytes, 0, &self.host_id);
        put(&mut bytes, 16, &self.cntlid.to_le_bytes());
        super::put_text(&mut bytes, 256, 255, &self.subsystem_nqn, 0);
        super::put_text(&mut bytes, 512, 255, &self.host_nqn, 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_data_comes_back() {
        let data = ConnectData {
            host_id: [7; 16],
            cntlid: ConnectData::ANY_CONTROLLER,
            subsystem_nqn: "nqn.2026-11.org.example:disk".to_owned(),
            host_nqn: "nqn.2014-08.org.nvmexpress:uuid:0".to_owned(),
        };
        assert_eq!(ConnectData::parse(&data.emit()), Some(data));
        assert_eq!(ConnectData::parse(&[0; 1023]), None);
    }

    #[test]
    fn a_name_is_printable_and_not_too_long() {
        assert!(Nqn::new("nqn.2026-11.org.example:disk").is_some());
        assert!(Nqn::new("disk").is_none());
        assert!(Nqn::new("nqn.with space").is_none());
        assert!(Nqn::new(&format!("nqn.{}", "x".repeat(Nqn::LONGEST))).is_none());
    }
}
