//! MPA start-up on the connecting side: sends the Request, checks the Reply.

use super::negotiate::{Depths, OFFERED, chosen};
use super::{Startup, StartupConfig, StartupError, StartupEvent, StartupRequest, State};
use crate::iwarp::params::{StreamParams, StreamRole};
use crate::time::Time;
use nonic_wire::iwarp::{
    Enhanced, FrameKind, Framer, Framing, Header, MpaFrame, Revision, Segment, Terminate, TerminateCode,
};

impl Startup {
    /// Begins on a TCP connection that was just opened: the Request is to be transmitted.
    pub fn connect(
        now: Time,
        config: &StartupConfig,
        request: &StartupRequest<'_>,
    ) -> Result<Self, StartupError> {
        let asked = Depths::limited(request.ird, request.ord, config);
        let enhanced = Enhanced {
            ird: asked.ird,
            ord: asked.ord,
            peer_to_peer: config.peer_to_peer.then_some(OFFERED),
        };
        let frame = MpaFrame {
            kind: FrameKind::Request,
            // In-order frames are found by their lengths: this side needs no markers.
            markers: false,
            crc: config.crc,
            rejected: false,
            revision: if config.enhanced {
                Revision::Two(Some(enhanced))
            } else {
                Revision::One
            },
            private_data: request.private_data,
        };
        let mut startup = Startup::new(config, State::AwaitReply { asked }, now + config.reply_timeout);
        frame
            .emit_into(&mut startup.output)
            .map_err(|_| StartupError::PrivateData)?;
        Ok(startup)
    }

    pub(super) fn handle_reply(&mut self, frame: &MpaFrame<'_>, asked: Depths) {
        if frame.kind == FrameKind::Request {
            return self.fail(StartupError::SameRole);
        }
        let private_data = frame.private_data.to_vec();
        if frame.rejected {
            return self.end(StartupEvent::Rejected { private_data });
        }
        let crc = self.config.crc || frame.crc;
        let (depths, rtr, peer) = match frame.enhanced() {
            None => {
                let Depths { ird, ord } = Depths::limited(u16::MAX, u16::MAX, &self.config);
                // The peer said nothing of its own limits.
                (asked, None, Depths { ird, ord })
            }
            Some(reply) => {
                let peer = Depths {
                    ird: reply.ird,
                    ord: reply.ord,
                };
                let Some(depths) = asked.settle(&reply, &self.config) else {
                    return self.refuse(crc, frame.markers, TerminateCode::MPA_INSUFFICIENT_IRD);
                };
                let rtr = reply.peer_to_peer.map(chosen);
                if rtr == Some(None) {
                    return self.refuse(crc, frame.markers, TerminateCode::MPA_NO_MATCHING_RTR);
                }
                (depths, rtr.flatten(), peer)
            }
        };
        self.end(StartupEvent::Accepted {
            params: StreamParams {
                role: StreamRole::Initiator,
                crc,
                markers: frame.markers,
                ird: depths.ird,
                ord: depths.ord,
                rtr,
            },
            peer_ird: peer.ird,
            peer_ord: peer.ord,
            private_data,
        });
    }

    /// The Reply is not acceptable. The stream exists by now, so a Terminate tells the peer: the first and last message
    /// of the stream.
    fn refuse(&mut self, crc: bool, markers: bool, code: TerminateCode) {
        let terminate = Terminate::new(code);
        let mut body = [0; Terminate::MAX_LEN];
        let length = terminate.emit(&mut body);
        let segment = Segment {
            header: Header::Terminate { msn: 1 },
            payload: &body[..length],
        };
        Framer::new(Framing { crc, markers }).frame(&segment, &mut self.output);
        self.fail(match code {
            TerminateCode::MPA_INSUFFICIENT_IRD => StartupError::InsufficientIrd,
            _ => StartupError::NoMatchingRtr,
        });
    }
}
