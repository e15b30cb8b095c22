//! The events by which queue pairs say what is to be done with their streams.

use super::Streams;
use nonic_core::cm::{CmEvent, Disconnect};
use nonic_core::iwarp::{StreamEnd, StreamEvent};
use nonic_core::{Nic, Time};

impl Streams {
    /// Does what the NIC's queue pairs want. Whether they wanted anything.
    pub(crate) fn attend(&mut self, now: Time, nic: &mut Nic) -> bool {
        let mut worked = false;
        while let Some(event) = nic.poll_stream_event() {
            worked = true;
            let Some(slot) = self.by_qpn.get(&event.qpn()).copied() else {
                continue;
            };
            let connection = &mut self.connections[slot];
            let (id, known) = (connection.id, connection.known);
            match event {
                StreamEvent::Transmit(qpn) => {
                    connection.wants_to_send = true;
                    self.write_attached(now, nic, slot, qpn);
                    let connection = &self.connections[slot];
                    if connection.wants_to_send && connection.writable {
                        self.stand_in_line(slot);
                    }
                }
                StreamEvent::Receive(qpn) => {
                    nic.stream_received(now, qpn, &[]);
                    if std::mem::take(&mut connection.held_back) {
                        connection.readable = true;
                        self.stand_in_line(slot);
                    }
                }
                StreamEvent::Established(_) if known => {
                    self.events.push_back(CmEvent::Established {
                        connection: id,
                        private_data: Vec::new(),
                    });
                }
                StreamEvent::Established(_) => {}
                StreamEvent::Finish(_) if connection.unsent.is_empty() => connection.socket.finish(),
                // Start-up's last words are still to be sent.
                StreamEvent::Finish(_) => connection.finishes = true,
                StreamEvent::Disconnected(qpn, end) => {
                    if known {
                        self.events.push_back(CmEvent::Disconnected {
                            connection: id,
                            qpn,
                            cause: cause(end),
                            private_data: Vec::new(),
                        });
                    }
                }
                StreamEvent::Close(_) => {
                    if known {
                        self.events.push_back(CmEvent::TimewaitExit { connection: id });
                    }
                    self.remove(slot);
                }
            }
        }
        worked
    }
}

fn cause(end: StreamEnd) -> Disconnect {
    match end {
        StreamEnd::Closed | StreamEnd::Aborted | StreamEnd::Terminated(_) => Disconnect::Local,
        StreamEnd::PeerClosed | StreamEnd::PeerTerminated(_) => Disconnect::Remote,
        _ => Disconnect::Unknown,
    }
}
