//! Servers of tonic over [`Incoming`](crate::Incoming): `Server::builder().serve_with_incoming(listener.incoming())`.

use crate::peer_addr::PeerAddr;
use crate::stream::RdmaStream;
use tonic::transport::server::Connected;

/// A handler finds the peer's address in the request's extensions, as `PeerAddr`.
impl Connected for RdmaStream {
    type ConnectInfo = PeerAddr;

    fn connect_info(&self) -> Self::ConnectInfo {
        PeerAddr(self.writer.peer_addr())
    }
}
