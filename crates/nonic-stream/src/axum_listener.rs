//! `axum::serve(listener, router)` with an [`RdmaListener`].

use crate::listener::RdmaListener;
use crate::peer_addr::PeerAddr;
use crate::stream::RdmaStream;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// How long to wait when this host has no room for one more stream.
const PAUSE: Duration = Duration::from_secs(1);

impl axum::serve::Listener for RdmaListener {
    type Io = RdmaStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match RdmaListener::accept(self).await {
                Ok(accepted) => return accepted,
                // A server goes on: memory or numbers come back when streams end.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        RdmaListener::local_addr(self)
    }
}

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, RdmaListener>> for PeerAddr {
    fn connect_info(stream: axum::serve::IncomingStream<'_, RdmaListener>) -> Self {
        PeerAddr(*stream.remote_addr())
    }
}
