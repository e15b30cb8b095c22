//! Opcodes: the table of every packet kind this crate understands.
//!
//! The table below is the one place where a byte gets its meaning; everything else (which headers follow,
//! how long they are) is derived from it at compile time. Opcodes not in the table cannot be represented.

use std::fmt;

use crate::{HeaderSet, Operation, Service};

/// The kind of a packet: a known opcode byte.
///
/// ```
/// use nonic_wire::{Opcode, Operation, Service};
/// let opcode = Opcode::from_byte(0x0a).unwrap();
/// assert_eq!(opcode, Opcode::RC_RDMA_WRITE_ONLY);
/// assert_eq!((opcode.service(), opcode.operation()), (Service::Rc, Operation::WriteOnly));
/// assert_eq!(opcode.header_len(), 12 + 16);
/// assert_eq!(Opcode::from_byte(0xff), None);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

impl Opcode {
    /// The opcode with this byte, if it is a known one.
    pub const fn from_byte(byte: u8) -> Option<Opcode> {
        if TABLE[byte as usize].known {
            Some(Opcode(byte))
        } else {
            None
        }
    }

    /// The opcode for `operation` under `service`, if the service has that operation.
    pub const fn new(service: Service, operation: Operation) -> Option<Opcode> {
        let byte = service.base() | operation as u8;
        let entry = &TABLE[byte as usize];
        // Comparing the operation back refuses mixtures with CNP, whose number is not a five-bit one.
        if entry.known && entry.service as u8 == service as u8 && entry.operation as u8 == operation as u8 {
            Some(Opcode(byte))
        } else {
            None
        }
    }

    /// The byte on the wire.
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// The transport service.
    pub const fn service(self) -> Service {
        self.entry().service
    }

    /// What the packet does.
    pub const fn operation(self) -> Operation {
        self.entry().operation
    }

    /// The extension headers behind the BTH.
    pub const fn headers(self) -> HeaderSet {
        self.entry().headers
    }

    /// Bytes of the BTH and all extension headers.
    pub const fn header_len(self) -> usize {
        self.entry().header_len as usize
    }

    /// The name of the associated constant, such as `RC_SEND_ONLY`.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    const fn entry(self) -> &'static Entry {
        &TABLE[self.0 as usize]
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known about one opcode byte.
#[derive(Copy, Clone)]
struct Entry {
    known: bool,
    service: Service,
    operation: Operation,
    headers: HeaderSet,
    header_len: u8,
    name: &'static str,
}

impl Entry {
    /// Fills the gaps of the table. No `Opcode` ever refers to it.
    const UNKNOWN: Entry = Entry {
        known: false,
        service: Service::Rc,
        operation: Operation::SendOnly,
        headers: HeaderSet::NONE,
        header_len: 0,
        name: "UNKNOWN",
    };

    const fn new(service: Service, operation: Operation, name: &'static str) -> Entry {
        let headers = operation.headers().union(match service {
            Service::Ud => HeaderSet::DETH,
            // Responses return to a queue pair, not to a shared receive queue.
            Service::Xrc if operation.is_request() => HeaderSet::XRCETH,
            _ => HeaderSet::NONE,
        });
        let header_len = (HeaderSet::BTH_LEN + headers.wire_len()) as u8;
        Entry {
            known: true,
            service,
            operation,
            headers,
            header_len,
            name,
        }
    }
}

/// Declares the associated constants, `Opcode::ALL` and the lookup table from one list.
macro_rules! opcodes {
    ($($name:ident = $byte:literal, $service:ident, $operation:ident;)*) => {
        impl Opcode {
            $(
                #[doc = concat!("Opcode `", stringify!($byte), "`.")]
                pub const $name: Opcode = Opcode($byte);
            )*

            /// Every known opcode, in the order of their bytes.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name),*];
        }

        static TABLE: [Entry; 256] = {
            let mut table = [Entry::UNKNOWN; 256];
            $(
                table[$byte] = Entry::new(Service::$service, Operation::$operation, stringify!($name));
            )*
            table
        };
    };
}

opcodes! {
    RC_SEND_FIRST = 0x00, Rc, SendFirst;
    RC_SEND_MIDDLE = 0x01, Rc, SendMiddle;
    RC_SEND_LAST = 0x02, Rc, SendLast;
    RC_SEND_LAST_WITH_IMMEDIATE = 0x03, Rc, SendLastWithImmediate;
    RC_SEND_ONLY = 0x04, Rc, SendOnly;
    RC_SEND_ONLY_WITH_IMMEDIATE = 0x05, Rc, SendOnlyWithImmediate;
    RC_RDMA_WRITE_FIRST = 0x06, Rc, WriteFirst;
    RC_RDMA_WRITE_MIDDLE = 0x07, Rc, WriteMiddle;
    RC_RDMA_WRITE_LAST = 0x08, Rc, WriteLast;
    RC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09, Rc, WriteLastWithImmediate;
    RC_RDMA_WRITE_ONLY = 0x0a, Rc, WriteOnly;
    RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0b, Rc, WriteOnlyWithImmediate;
    RC_RDMA_READ_REQUEST = 0x0c, Rc, ReadRequest;
    RC_RDMA_READ_RESPONSE_FIRST = 0x0d, Rc, ReadResponseFirst;
    RC_RDMA_READ_RESPONSE_MIDDLE = 0x0e, Rc, ReadResponseMiddle;
    RC_RDMA_READ_RESPONSE_LAST = 0x0f, Rc, ReadResponseLast;
    RC_RDMA_READ_RESPONSE_ONLY = 0x10, Rc, ReadResponseOnly;
    RC_ACKNOWLEDGE = 0x11, Rc, Acknowledge;
    RC_ATOMIC_ACKNOWLEDGE = 0x12, Rc, AtomicAcknowledge;
    RC_COMPARE_SWAP = 0x13, Rc, CompareSwap;
    RC_FETCH_ADD = 0x14, Rc, FetchAdd;
    RC_SEND_LAST_WITH_INVALIDATE = 0x16, Rc, SendLastWithInvalidate;
    RC_SEND_ONLY_WITH_INVALIDATE = 0x17, Rc, SendOnlyWithInvalidate;
    RC_FLUSH = 0x1c, Rc, Flush;
    RC_ATOMIC_WRITE = 0x1d, Rc, AtomicWrite;

    UC_SEND_FIRST = 0x20, Uc, SendFirst;
    UC_SEND_MIDDLE = 0x21, Uc, SendMiddle;
    UC_SEND_LAST = 0x22, Uc, SendLast;
    UC_SEND_LAST_WITH_IMMEDIATE = 0x23, Uc, SendLastWithImmediate;
    UC_SEND_ONLY = 0x24, Uc, SendOnly;
    UC_SEND_ONLY_WITH_IMMEDIATE = 0x25, Uc, SendOnlyWithImmediate;
    UC_RDMA_WRITE_FIRST = 0x26, Uc, WriteFirst;
    UC_RDMA_WRITE_MIDDLE = 0x27, Uc, WriteMiddle;
    UC_RDMA_WRITE_LAST = 0x28, Uc, WriteLast;
    UC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x29, Uc, WriteLastWithImmediate;
    UC_RDMA_WRITE_ONLY = 0x2a, Uc, WriteOnly;
    UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x2b, Uc, WriteOnlyWithImmediate;

    UD_SEND_ONLY = 0x64, Ud, SendOnly;
    UD_SEND_ONLY_WITH_IMMEDIATE = 0x65, Ud, SendOnlyWithImmediate;

    CNP = 0x81, Cnp, Cnp;

    XRC_SEND_FIRST = 0xa0, Xrc, SendFirst;
    XRC_SEND_MIDDLE = 0xa1, Xrc, SendMiddle;
    XRC_SEND_LAST = 0xa2, Xrc, SendLast;
    XRC_SEND_LAST_WITH_IMMEDIATE = 0xa3, Xrc, SendLastWithImmediate;
    XRC_SEND_ONLY = 0xa4, Xrc, SendOnly;
    XRC_SEND_ONLY_WITH_IMMEDIATE = 0xa5, Xrc, SendOnlyWithImmediate;
    XRC_RDMA_WRITE_FIRST = 0xa6, Xrc, WriteFirst;
    XRC_RDMA_WRITE_MIDDLE = 0xa7, Xrc, WriteMiddle;
    XRC_RDMA_WRITE_LAST = 0xa8, Xrc, WriteLast;
    XRC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0xa9, Xrc, WriteLastWithImmediate;
    XRC_RDMA_WRITE_ONLY = 0xaa, Xrc, WriteOnly;
    XRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0xab, Xrc, WriteOnlyWithImmediate;
    XRC_RDMA_READ_REQUEST = 0xac, Xrc, ReadRequest;
    XRC_RDMA_READ_RESPONSE_FIRST = 0xad, Xrc, ReadResponseFirst;
    XRC_RDMA_READ_RESPONSE_MIDDLE = 0xae, Xrc, ReadResponseMiddle;
    XRC_RDMA_READ_RESPONSE_LAST = 0xaf, Xrc, ReadResponseLast;
    XRC_RDMA_READ_RESPONSE_ONLY = 0xb0, Xrc, ReadResponseOnly;
    XRC_ACKNOWLEDGE = 0xb1, Xrc, Acknowledge;
    XRC_ATOMIC_ACKNOWLEDGE = 0xb2, Xrc, AtomicAcknowledge;
    XRC_COMPARE_SWAP = 0xb3, Xrc, CompareSwap;
    XRC_FETCH_ADD = 0xb4, Xrc, FetchAdd;
    XRC_SEND_LAST_WITH_INVALIDATE = 0xb6, Xrc, SendLastWithInvalidate;
    XRC_SEND_ONLY_WITH_INVALIDATE = 0xb7, Xrc, SendOnlyWithInvalidate;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_agrees_with_the_list_of_all() {
        for byte in 0..=255u8 {
            let listed = Opcode::ALL.iter().any(|opcode| opcode.byte() == byte);
            assert_eq!(Opcode::from_byte(byte).is_some(), listed, "{byte:#04x}");
        }
    }

    #[test]
    fn service_and_operation_give_the_opcode_back() {
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::new(opcode.service(), opcode.operation()), Some(opcode));
        }
    }

    #[test]
    fn a_service_has_only_its_own_operations() {
        assert_eq!(Opcode::new(Service::Ud, Operation::WriteOnly), None);
        assert_eq!(Opcode::new(Service::Uc, Operation::ReadRequest), None);
        assert_eq!(Opcode::new(Service::Rc, Operation::Cnp), None);
        assert_eq!(Opcode::new(Service::Xrc, Operation::Cnp), None);
        assert_eq!(Opcode::new(Service::Cnp, Operation::SendMiddle), None);
    }

    #[test]
    fn header_lengths_are_those_of_the_specification() {
        let expected = [
            (Opcode::RC_SEND_MIDDLE, 12),
            (Opcode::RC_ACKNOWLEDGE, 16),
            (Opcode::RC_ATOMIC_ACKNOWLEDGE, 24),
            (Opcode::RC_FETCH_ADD, 40),
            (Opcode::RC_FLUSH, 32),
            (Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, 12),
            (Opcode::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 32),
            (Opcode::RC_SEND_ONLY_WITH_INVALIDATE, 16),
            (Opcode::UD_SEND_ONLY, 20),
            (Opcode::UD_SEND_ONLY_WITH_IMMEDIATE, 24),
            (Opcode::XRC_SEND_MIDDLE, 16),
            (Opcode::XRC_ACKNOWLEDGE, 16),
            (Opcode::XRC_COMPARE_SWAP, 44),
            (Opcode::CNP, 12),
        ];
        for (opcode, len) in expected {
            assert_eq!(opcode.header_len(), len, "{opcode}");
        }
    }
}
