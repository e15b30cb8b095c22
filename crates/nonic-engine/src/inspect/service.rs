//! The names of services of the connection manager, as users write ports.

use nonic_wire::cm::{PortSpace, ServiceId};

/// `tcp:7471`, or the number where it is no port.
pub(super) fn service_name(service: ServiceId) -> String {
    match service.port() {
        Some((PortSpace::Tcp, port)) => format!("tcp:{port}"),
        Some((PortSpace::Udp, port)) => format!("udp:{port}"),
        Some((PortSpace::Ib, port)) => format!("ib:{port}"),
        Some((PortSpace::Ipoib, port)) => format!("ipoib:{port}"),
        None => format!("{:#018x}", service.0),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ports_are_named_by_their_space() {
        let service = ServiceId::from_port(PortSpace::Tcp, 7471);
        assert_eq!(service_name(service), "tcp:7471");
        assert_eq!(service_name(ServiceId(7)), "0x0000000000000007");
    }
}
