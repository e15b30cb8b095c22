//! The discovery log page: which subsystems there are, and where.

use super::{put, put_text, read_u64, text};
use std::net::IpAddr;

/// Bytes of the log page before the first entry, and of each entry.
pub const DISCOVERY_HEADER: usize = 1024;

/// What carries RDMA there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RdmaProvider {
    /// RoCE, second version.
    RoceV2,
    /// iWARP.
    Iwarp,
}

/// Where a subsystem is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscoveryEntry {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The name.
    pub subsystem_nqn: String,
    /// What carries RDMA.
    pub provider: RdmaProvider,
    /// The longest admin queue.
    pub admin_queue: u16,
}

impl DiscoveryEntry {
    fn emit(&self) -> [u8; DISCOVERY_HEADER] {
        const RDMA: u8 = 1;
        const NVM_SUBSYSTEM: u8 = 2;
        let mut bytes = [0; DISCOVERY_HEADER];
        bytes[0] = RDMA;
        bytes[1] = match self.address {
            IpAddr::V4(_) => 1,
            IpAddr::V6(_) => 2,
        };
        bytes[2] = NVM_SUBSYSTEM;
        // The port's number, and any controller.
        put(&mut bytes, 4, &1_u16.to_le_bytes());
        put(&mut bytes, 6, &0xffff_u16.to_le_bytes());
        put(&mut bytes, 8, &self.admin_queue.to_le_bytes());
        put_text(&mut bytes, 32, 32, &self.port.to_string(), b' ');
        put_text(&mut bytes, 256, 255, &self.subsystem_nqn, 0);
        put_text(&mut bytes, 512, 256, &self.address.to_string(), b' ');
        // A reliable connection, made by RDMA's own connection manager.
        bytes[768] = 1;
        bytes[769] = match self.provider {
            RdmaProvider::RoceV2 => 4,
            RdmaProvider::Iwarp => 5,
        };
        bytes[770] = 1;
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(DiscoveryEntry {
            address: text(&bytes[512..768]).parse().ok()?,
            port: text(&bytes[32..64]).parse().ok()?,
            subsystem_nqn: text(&bytes[256..512]),
            provider: match bytes[769] {
                5 => RdmaProvider::Iwarp,
                _ => RdmaProvider::RoceV2,
            },
            admin_queue: super::read_u16(bytes, 8),
        })
    }

    /// The entries of a whole log page. What is not on RDMA or cannot be read is left out.
    pub fn list(page: &[u8]) -> Vec<Self> {
        let Some((header, entries)) = page.split_at_checked(DISCOVERY_HEADER) else {
            return Vec::new();
        };
        let count = usize::try_from(read_u64(header, 8)).unwrap_or(usize::MAX);
        let entries = entries.chunks_exact(DISCOVERY_HEADER).take(count);
        entries
            .filter(|entry| entry[0] == 1)
            .filter_map(Self::parse)
            .collect()
    }
}

/// The log page with these entries; `generation` changes when they do.
pub fn discovery_log(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
    let mut bytes = vec![0; DISCOVERY_HEADER];
    put(&mut bytes, 0, &generation.to_le_bytes());
    put(&mut bytes, 8, &(entries.len() as u64).to_le_bytes());
    for entry in entries {
        bytes.extend(entry.emit());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let entry = DiscoveryEntry {
            address: IpAddr::from([10, 77, 0, 254]),
            port: 4420,
            subsystem_nqn: "nqn.2026-11.org.example:disk".to_owned(),
            provider: RdmaProvider::Iwarp,
            admin_queue: 32,
        };
        let page = discovery_log(1, std::slice::from_ref(&entry));
        assert_eq!(page.len(), 2048);
        assert_eq!(DiscoveryEntry::list(&page), [entry]);
        assert!(DiscoveryEntry::list(&page[..1500]).is_empty());
        assert!(DiscoveryEntry::list(&[]).is_empty());
    }
}
