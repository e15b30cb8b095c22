//! A stream's queue pair and memory: where the protocol meets the verbs.
//!
//! [`Stream`] decides what is said; here it is posted, and completions are brought back to it.

use super::completions::CompletionQueue;
use super::identifier::Identifier;
use super::mapping::Iomaps;
use super::memory::Memory;
use super::protocol::{
    CONTROL_SLOTS, Carrier, Control, Hello, Message, Segment, Sizes, Stream, TARGETS, TargetList, Write,
};
use super::settings::Settings;
use super::vector::Vector;
use super::words::{BATCH, Words};
use crate::connection::{self, NO_PARAMETERS};
use crate::qp;
use crate::refusal;
use libc::c_int;
use nonic_abi::errno::{self, Errno, refused};
use nonic_abi::rdma_cma::rdma_conn_param;
use nonic_abi::verbs::*;
use std::os::fd::RawFd;

/// Batches taken before the caller has its turn, however much there is.
const MAX_BATCHES: usize = 64;

/// The largest write. rdma-core begins with small ones, so that a device can send one while the next is copied; here
/// the thread that copies is the device.
pub(super) const MAX_WRITE: u32 = 1 << 16;

/// A queue pair with its completion queue and buffers.
pub(crate) struct StreamQueuePair {
    // In this order: the queue pair is destroyed with its identifier, before what it uses.
    pub(super) identifier: Identifier,
    queue: CompletionQueue,
    sending: Memory,
    receiving: Memory,
    words: Words,
    /// The list that the peer writes targets to, followed by that of its mapped buffers.
    pub(super) lists: Memory,
    sizes: Sizes,
    carrier: Carrier,
    inline: u32,
    /// Receives come back unused: the queue pair is not connected any more.
    flushed: bool,
    /// The peer has ended the connection, and the stream ends with what completes last.
    hung_up: bool,
    pub(super) iomaps: Iomaps,
    /// Once the peer has greeted.
    pub(super) connected: Option<(Hello, Stream)>,
}

impl StreamQueuePair {
    /// Makes everything a connection needs before it is asked for.
    pub(crate) fn new(identifier: Identifier, settings: &Settings) -> Result<Self, Errno> {
        let id = identifier.id();
        let device = id.device()?;
        let sizes = settings.stream_sizes();
        let carrier = match id.is_iwarp() {
            true => Carrier::Send,
            false => Carrier::Immediate,
        };
        let receives = u32::from(sizes.receive_queue) + u32::from(carrier.spare_receives());
        let entries = u32::from(sizes.send_queue) + receives;
        let queue = CompletionQueue::new(device.context, entries)?;
        // SAFETY: all zeros are attributes.
        let mut attr: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        attr.send_cq = queue.cq();
        attr.recv_cq = queue.cq();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = ibv_qp_cap {
            max_send_wr: sizes.send_queue.into(),
            max_recv_wr: receives,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: match carrier {
                Carrier::Immediate => settings.inline.into(),
                Carrier::Send => settings.inline.max(Message::LEN as u16).into(),
            },
        };
        // SAFETY: there is no domain of our own, and the queue lives as long as the queue_pair.
        unsafe { qp::create(&id, std::ptr::null_mut(), &mut attr) }?;
        if carrier == Carrier::Send && (attr.cap.max_inline_data as usize) < Message::LEN {
            return Err(refused(
                libc::ENOTSUP,
                format!("the device takes only {} bytes inline", attr.cap.max_inline_data),
                "use a device that takes more",
            ));
        }
        let control = u32::from(CONTROL_SLOTS) * Segment::LEN as u32;
        let lists = Iomaps::offset(settings.iomap_size) as usize;
        let pd = device.pd;
        // SAFETY: the device's domain lives for ever.
        let (sending, receiving, lists, words) = unsafe {
            (
                Memory::new(pd, (sizes.send_buffer + control) as usize, IBV_ACCESS_LOCAL_WRITE)?,
                Memory::new(pd, sizes.receive_buffer as usize, REMOTE_WRITE)?,
                Memory::new(pd, lists, REMOTE_WRITE)?,
                Words::new(pd, carrier, receives)?,
            )
        };
        let queue_pair = StreamQueuePair {
            identifier,
            queue,
            sending,
            receiving,
            words,
            lists,
            sizes,
            carrier,
            inline: attr.cap.max_inline_data,
            flushed: false,
            hung_up: false,
            iomaps: Iomaps::new(settings.iomap_size),
            connected: None,
        };
        // SAFETY: the queue pair is as long as that.
        unsafe { queue_pair.words.post_all(queue_pair.identifier.id().qp()) }?;
        Ok(queue_pair)
    }

    /// Our greeting.
    pub(crate) fn hello(&self) -> Hello {
        Hello {
            big_endian: cfg!(target_endian = "big"),
            credits: self.sizes.receive_queue,
            iomap_size: self.iomaps.size(),
            targets: Segment {
                address: self.lists.address(0),
                key: self.lists.rkey(),
                length: TARGETS as u32,
            },
            buffer: Segment {
                length: self.sizes.receive_buffer / 2,
                ..self.ring()
            },
        }
    }

    fn ring(&self) -> Segment {
        Segment {
            address: self.receiving.address(0),
            key: self.receiving.rkey(),
            length: self.sizes.receive_buffer,
        }
    }

    /// The peer's greeting has come: from here on there is a stream.
    pub(crate) fn greeted(&mut self, peer: Hello) {
        let stream = Stream::new(self.carrier, self.sizes, self.ring(), &peer);
        self.connected = Some((peer, stream));
    }

    pub(crate) fn stream(&self) -> Option<&Stream> {
        self.connected.as_ref().map(|(_, stream)| stream)
    }

    pub(crate) fn stream_mut(&mut self) -> Option<&mut Stream> {
        self.connected.as_mut().map(|(_, stream)| stream)
    }

    /// Takes what has completed and says what has to be said; tells whether anything had completed.
    pub(crate) fn progress(&mut self) -> bool {
        let mut happened = false;
        for _ in 0..MAX_BATCHES {
            let taken = self.take_completions();
            happened |= taken > 0;
            if taken < BATCH {
                break;
            }
        }
        self.post_controls();
        happened
    }

    fn take_completions(&mut self) -> usize {
        // SAFETY: all zeros are completions.
        let mut completions: [ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
        let taken = self.queue.poll(&mut completions);
        let (mut received, mut used) = ([0; BATCH], 0);
        let (Some((_, stream)), lists) = (self.connected.as_mut(), &self.lists) else {
            return taken;
        };
        for completion in &completions[..taken] {
            let succeeded = completion.status == 0;
            let Some(index) = Words::index(completion) else {
                stream.handle_sent(succeeded);
                continue;
            };
            if !succeeded {
                // The queue pair is in error: nothing will come any more.
                self.flushed = true;
                match self.hung_up {
                    true => stream.end(),
                    false => stream.fail(),
                }
                continue;
            }
            received[used] = index;
            used += 1;
            let Some(word) = self.words.read(completion) else {
                stream.fail();
                continue;
            };
            // A violation of the protocol has ended the stream; no one else needs to know.
            if let Ok(Message::Iomap(index)) = stream.handle_message(word, &mut Targets(lists)) {
                self.iomaps.noticed(lists, index);
            }
        }
        if used > 0 && stream.is_connected() {
            let qp = self.identifier.id().qp();
            // SAFETY: the queue pair is alive; these have completed, so there is room.
            if unsafe { self.words.post(qp, &received[..used]) }.is_err() {
                match self.hung_up {
                    true => stream.end(),
                    false => stream.fail(),
                }
            }
        }
        taken
    }

    fn fail(&mut self) {
        if let Some(stream) = self.stream_mut() {
            stream.fail();
        }
    }

    /// Posts what is due besides data.
    pub(crate) fn post_controls(&mut self) {
        while let Some(control) = self.stream_mut().and_then(Stream::next_control) {
            if self.post_control(&control).is_err() {
                self.fail();
            }
        }
    }

    fn post_control(&self, control: &Control) -> Result<(), Errno> {
        let (peer, _) = self
            .connected
            .as_ref()
            .ok_or_else(refusal::socket_not_connected)?;
        let to = |remote_addr| ibv_wr_rdma {
            remote_addr,
            rkey: peer.targets.key,
        };
        if control.message == Message::Keepalive {
            // Nothing for the peer to know: that its device takes it is all.
            return self.post(Some((&mut [], 0, to(peer.targets.address))), None);
        }
        let Some((record, address)) = control.record else {
            return self.post(None, Some(control.message));
        };
        let offset = self.sizes.send_buffer + u32::from(control.slot) * Segment::LEN as u32;
        self.sending.write(offset, &record.emit(peer.big_endian));
        let mut sge = [ibv_sge {
            addr: self.sending.address(offset),
            length: Segment::LEN as u32,
            lkey: self.sending.lkey(),
        }];
        self.post(Some((&mut sge, 0, to(address))), Some(control.message))
    }

    /// Sends what it can of the program's bytes; tells how many.
    pub(crate) fn send(&mut self, vector: &mut Vector<'_>) -> usize {
        let before = vector.left();
        while vector.left() > 0 {
            let wanted = vector.left().min(MAX_WRITE as usize) as u32;
            let Some(write) = self.stream_mut().and_then(|stream| stream.send(wanted)) else {
                break;
            };
            self.fill_and_post(&write, vector);
        }
        before - vector.left()
    }

    /// Posts a write of the vector's next bytes.
    pub(super) fn fill_and_post(&mut self, write: &Write, vector: &mut Vector<'_>) {
        let length = write.length() as usize;
        let mut sges = self.sges(write);
        let mut flags = 0;
        let mut used = usize::from(write.from[1].length > 0) + 1;
        match vector.contiguous(length) {
            Some(bytes) if write.length() <= self.inline => {
                sges[0] = ibv_sge {
                    addr: bytes as u64,
                    length: write.length(),
                    lkey: 0,
                };
                used = 1;
                flags = IBV_SEND_INLINE;
                vector.skip(length);
            }
            _ => {
                for piece in write.from {
                    let to = self.sending.at(piece.offset, piece.length);
                    // SAFETY: `at` has seen to the room.
                    unsafe { vector.copy_to(to, piece.length as usize) };
                }
            }
        }
        self.post_write(write, &mut sges[..used], flags);
    }

    fn sges(&self, write: &Write) -> [ibv_sge; 2] {
        write.from.map(|piece| ibv_sge {
            addr: self.sending.address(piece.offset),
            length: piece.length,
            lkey: self.sending.lkey(),
        })
    }

    fn post_write(&mut self, write: &Write, sges: &mut [ibv_sge], flags: libc::c_uint) {
        let to = ibv_wr_rdma {
            remote_addr: write.to.address,
            rkey: write.to.key,
        };
        if self.post(Some((sges, flags, to)), write.message).is_err() {
            self.fail();
        }
    }

    /// Posts bytes to be written with their flags and their place, and the word about them. The last work request is signaled.
    fn post(
        &self,
        bytes: Option<(&mut [ibv_sge], libc::c_uint, ibv_wr_rdma)>,
        message: Option<Message>,
    ) -> Result<(), Errno> {
        // SAFETY: all zeros are work requests.
        let mut wrs: [ibv_send_wr; 2] = unsafe { std::mem::zeroed() };
        let [write, send] = &mut wrs;
        let has_write = bytes.is_some();
        write.opcode = IBV_WR_RDMA_WRITE;
        if let Some((sges, flags, to)) = bytes {
            write.sg_list = sges.as_mut_ptr();
            write.num_sge = sges.len() as c_int;
            write.send_flags = flags;
            write.wr.rdma = to;
        }
        let mut word;
        let mut sge;
        match (self.carrier, message) {
            (Carrier::Send, Some(message)) => {
                let big_endian = self.connected.as_ref().is_some_and(|(peer, _)| peer.big_endian);
                word = message.emit(big_endian);
                sge = ibv_sge {
                    addr: word.as_mut_ptr() as u64,
                    length: Message::LEN as u32,
                    lkey: 0,
                };
                send.opcode = IBV_WR_SEND;
                send.sg_list = &raw mut sge;
                send.num_sge = 1;
                send.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
                write.next = send;
                return self.post_chain(if has_write { write } else { send });
            }
            (Carrier::Immediate, Some(message)) => {
                write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
                write.imm_data = message.encode().to_be();
            }
            (_, None) => {}
        }
        write.send_flags |= IBV_SEND_SIGNALED;
        self.post_chain(write)
    }

    fn post_chain(&self, first: *mut ibv_send_wr) -> Result<(), Errno> {
        let qp = self.identifier.id().qp();
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is alive, and what the requests name lives until they have completed.
        unsafe {
            let post_send = (*(*qp).context)
                .ops
                .post_send
                .ok_or_else(refusal::no_such_operation)?;
            errno::check(post_send(qp, first, &raw mut bad))
        }
    }

    /// Whether a peer's device has to end the connection as well, for both to know that everything arrived: see
    /// [`end_connection`](Self::end_connection).
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.carrier == Carrier::Send
    }

    /// Ends the connection, since everything is said. Over iWARP what completed is only on its way: that it arrived is known once the
    /// peer's device has ended its half too, and the receives come [back](Self::is_flushed). A stream closed before that, with
    /// something unread in it, would be reset, and what is on its way lost.
    pub(crate) fn end_connection(&self) {
        // The peer may have ended it before.
        let _ = connection::disconnect(&self.identifier.id());
    }

    /// The connection manager says that the peer has disconnected.
    ///
    /// Over iWARP the stream goes on until the receives come back: its end is told before what the peer sent last has completed, and a
    /// stream that ended now would have the program believe that it has read everything.
    pub(crate) fn hang_up(&mut self) {
        self.hung_up = true;
        if self.flushed || !self.ends_with_connection() {
            self.stream_mut().into_iter().for_each(Stream::end);
        }
    }

    /// The queue pair is not connected any more.
    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// Gives the program what there is, and tells how much; with `peek` it stays.
    pub(crate) fn receive(&mut self, vector: &mut Vector<'_>, peek: bool) -> usize {
        let Some((_, stream)) = self.connected.as_mut() else {
            return 0;
        };
        let wanted = vector.left().min(u32::MAX as usize) as u32;
        let pieces = stream.peek(wanted);
        let mut length = 0;
        for piece in pieces {
            let from = self.receiving.at(piece.offset, piece.length);
            // SAFETY: `at` has seen to the length.
            unsafe { vector.copy_from(from, piece.length as usize) };
            length += piece.length;
        }
        if !peek {
            stream.read(length);
            self.post_controls();
        }
        length as usize
    }

    /// The descriptor that says when something completes after [`arm`](Self::arm).
    pub(crate) fn event_fd(&self) -> RawFd {
        self.queue.fd()
    }

    pub(crate) fn arm(&mut self) {
        self.queue.arm();
    }

    pub(crate) fn take_event(&mut self) {
        self.queue.take_event();
    }
}

/// The parameters of a connection: retried for ever when there is no receive, since those come back when the program reads.
pub(super) fn parameters(hello: &[u8], is_iwarp: bool) -> rdma_conn_param {
    // No READs, but that some devices begin an iWARP connection with an empty one.
    let reads = is_iwarp.into();
    rdma_conn_param {
        private_data: hello.as_ptr().cast(),
        private_data_len: hello.len() as u8,
        responder_resources: reads,
        initiator_depth: reads,
        ..NO_PARAMETERS
    }
}

/// The list of targets in memory.
struct Targets<'a>(&'a Memory);

impl TargetList for Targets<'_> {
    fn read(&mut self, index: usize) -> Segment {
        let offset = (index * Segment::LEN) as u32;
        // The length is written last, so it is read first: an entry that has one has everything.
        let length = offset + Segment::LENGTH_OFFSET as u32;
        if self.0.load(length) == 0 {
            return Segment::default();
        }
        Segment::parse(&self.0.read(offset), cfg!(target_endian = "big"))
    }

    fn clear(&mut self, index: usize) {
        self.0.write((index * Segment::LEN) as u32, &[0; Segment::LEN]);
    }
}

const REMOTE_WRITE: u32 = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
