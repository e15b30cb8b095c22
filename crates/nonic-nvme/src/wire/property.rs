//! Properties: what would be the registers of a controller on PCI.

/// Version 1.4, as the property and Identify tell it.
pub const VERSION_1_4: u32 = 0x0001_0400;

/// Which property.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Property {
    /// What the controller can do, 8 bytes.
    Capabilities,
    /// Which version it has.
    Version,
    /// How the host wants it.
    Configuration,
    /// How it is.
    Status,
}

impl Property {
    /// By its offset.
    pub fn at(offset: u32) -> Option<Self> {
        match offset {
            0x00 => Some(Property::Capabilities),
            0x08 => Some(Property::Version),
            0x14 => Some(Property::Configuration),
            0x1c => Some(Property::Status),
            _ => None,
        }
    }

    /// Its offset.
    pub fn offset(self) -> u32 {
        match self {
            Property::Capabilities => 0x00,
            Property::Version => 0x08,
            Property::Configuration => 0x14,
            Property::Status => 0x1c,
        }
    }

    /// Whether it has 8 bytes instead of 4.
    pub fn is_wide(self) -> bool {
        self == Property::Capabilities
    }
}

/// What a controller can do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// The longest queue, in entries.
    pub queue_entries: u16,
    /// How long the controller takes to become ready, in halves of a second.
    pub timeout_halves: u8,
}

impl Capabilities {
    /// As the property has it: queues are contiguous, the command set is NVM, pages have 4 KiB.
    pub fn value(self) -> u64 {
        const CONTIGUOUS: u64 = 1 << 16;
        const NVM: u64 = 1 << 37;
        u64::from(self.queue_entries.saturating_sub(1))
            | CONTIGUOUS
            | u64::from(self.timeout_halves) << 24
            | NVM
    }
}

/// How the host wants a controller.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Configuration(pub u32);

impl Configuration {
    /// One that is enabled, with entries of 64 and 16 bytes.
    pub const ENABLED: Configuration = Configuration(1 | 6 << 16 | 4 << 20);

    /// Whether it shall do I/O.
    pub fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether it shall prepare for the end.
    pub fn is_shut_down(self) -> bool {
        self.0 >> 14 & 3 != 0
    }

    /// Whether what it asks for exists: the NVM command set, pages of 4 KiB, entries of 64 and 16 bytes.
    pub fn is_supported(self) -> bool {
        let (command_set, page) = (self.0 >> 4 & 7, self.0 >> 7 & 15);
        let (sq_entry, cq_entry) = (self.0 >> 16 & 15, self.0 >> 20 & 15);
        command_set == 0 && page == 0 && matches!((sq_entry, cq_entry), (6, 4) | (0, 0))
    }

    /// The status of a controller that is configured so.
    pub fn status(self) -> u32 {
        const READY: u32 = 1;
        const SHUTDOWN_COMPLETE: u32 = 2 << 2;
        let ready = if self.is_enabled() { READY } else { 0 };
        let ended = if self.is_shut_down() { SHUTDOWN_COMPLETE } else { 0 };
        ready | ended
    }
}
