//! MPA start-up on the listening side: takes the Request, sends the Reply.

use super::negotiate::{Depths, choose, named};
use super::{Asked, Startup, StartupConfig, StartupError, StartupEvent, StartupRequest, State};
use crate::iwarp::params::{Rtr, StreamParams, StreamRole};
use crate::time::Time;
use nonic_wire::iwarp::{Enhanced, FrameKind, MpaFrame, Revision};

impl Startup {
    /// Begins on a TCP connection that a peer has opened.
    pub fn listen(now: Time, config: &StartupConfig) -> Self {
        Startup::new(config, State::AwaitRequest, now + config.request_timeout)
    }

    pub(super) fn handle_request(&mut self, frame: &MpaFrame<'_>, more: bool) {
        if frame.kind == FrameKind::Reply {
            return self.fail(StartupError::SameRole);
        }
        if more {
            // Nothing may follow a Request before its Reply: RFC 5044 §7.1.2.
            return self.fail(StartupError::TooEarly);
        }
        let request = Asked {
            crc: frame.crc,
            markers: frame.markers,
            second_revision: frame.revision != Revision::One,
            enhanced: frame.enhanced(),
        };
        self.state = State::Deciding { request };
        // A peer that does not say leaves it to the programs. Zero would make them believe that READs are impossible.
        let (peer_ird, peer_ord) = match request.enhanced {
            Some(enhanced) => (
                said(enhanced.ird, self.config.max_ord),
                said(enhanced.ord, self.config.max_ird),
            ),
            None => (self.config.max_ord, self.config.max_ird),
        };
        self.events.push_back(StartupEvent::ConnectRequest {
            peer_ird,
            peer_ord,
            private_data: frame.private_data.to_vec(),
        });
    }

    /// Accepts. A queue pair must be attached with the answer before the Reply is transmitted: the peer may send at once.
    pub fn accept(&mut self, answer: &StartupRequest<'_>) -> Result<StreamParams, StartupError> {
        let State::Deciding { request } = self.state else {
            return Err(StartupError::NoRequest);
        };
        let wanted = Depths::limited(answer.ird, answer.ord, &self.config);
        let mut rtr = None;
        let (mut depths, mut enhanced) = (wanted, None);
        if let Some(asked) = request.enhanced {
            let (settled, mut reply) = wanted.answer(&asked, &self.config);
            depths = settled;
            rtr = asked.peer_to_peer.map(choose);
            reply.peer_to_peer = rtr.map(named);
            if rtr == Some(Rtr::Read) {
                // The ready message is a READ: there must be room for it, and some initiators look.
                depths.ird = depths.ird.max(1);
                reply.ird = reply.ird.max(1);
            }
            enhanced = Some(reply);
        }
        self.reply(&request, enhanced, false, answer.private_data)?;
        self.state = State::Over;
        Ok(StreamParams {
            role: StreamRole::Responder,
            crc: self.config.crc || request.crc,
            markers: request.markers,
            ird: depths.ird,
            ord: depths.ord,
            rtr,
        })
    }

    /// Refuses. The connection is to be closed after the Reply.
    pub fn reject(&mut self, private_data: &[u8]) -> Result<(), StartupError> {
        let State::Deciding { request } = self.state else {
            return Err(StartupError::NoRequest);
        };
        let enhanced = request.enhanced.map(|asked| Enhanced {
            ird: asked.ord.min(self.config.max_ird),
            ord: asked.ird.min(self.config.max_ord),
            peer_to_peer: asked.peer_to_peer.map(|offered| named(choose(offered))),
        });
        self.reply(&request, enhanced, true, private_data)?;
        self.state = State::Over;
        Ok(())
    }

    fn reply(
        &mut self,
        request: &Asked,
        enhanced: Option<Enhanced>,
        rejected: bool,
        private_data: &[u8],
    ) -> Result<(), StartupError> {
        let frame = MpaFrame {
            kind: FrameKind::Reply,
            markers: false,
            crc: self.config.crc || request.crc,
            rejected,
            // Of the revision of the Request, so that the peer understands it.
            revision: if request.second_revision {
                Revision::Two(enhanced)
            } else {
                Revision::One
            },
            private_data,
        };
        frame
            .emit_into(&mut self.output)
            .map_err(|_| StartupError::PrivateData)
    }
}

/// A depth that a peer said, or what stands for one that is not negotiated.
fn said(depth: u16, otherwise: u16) -> u16 {
    match depth {
        Enhanced::NOT_NEGOTIATED => otherwise,
        depth => depth,
    }
}
