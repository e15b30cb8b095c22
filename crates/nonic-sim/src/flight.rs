//! Records the flight of every packet of a fabric: when it left, and when it arrived, if it did. Used to draw a run.

use nonic_ladder::{Description, describe};
use nonic_netem::Train;
use nonic_wire::{Headers, Packet};

/// A packet on its way from one NIC to another.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) left_ns: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) headers: Headers,
    pub(crate) description: Description,
    /// When it arrived: once, never, or several times.
    pub(crate) arrivals_ns: Vec<u64>,
    /// Its bytes were changed on the way.
    pub(crate) damaged: bool,
}

/// The packets of a train that is about to be sent.
pub(crate) struct Departure {
    train: Train,
    flights: Vec<Option<Flight>>,
}

impl Departure {
    pub(crate) fn new(now_ns: u64, (from, to): (usize, usize), train: &Train) -> Self {
        let flight = |packet: Packet<'_>| Flight {
            left_ns: now_ns,
            from,
            to,
            headers: packet.headers,
            description: describe(&packet),
            arrivals_ns: Vec::new(),
            damaged: false,
        };
        let flights = train.packets().map(|bytes| Packet::parse(bytes).ok().map(flight));
        Departure {
            flights: flights.collect(),
            train: train.clone(),
        }
    }

    /// A piece of the train will arrive.
    pub(crate) fn arrives(&mut self, at_ns: u64, piece: &Train) {
        let first = usize::from(piece.first_id.wrapping_sub(self.train.first_id));
        let originals = self.train.packets().skip(first);
        let flights = self.flights.iter_mut().skip(first);
        for ((flight, original), bytes) in flights.zip(originals).zip(piece.packets()) {
            if let Some(flight) = flight {
                flight.arrivals_ns.push(at_ns);
                flight.damaged |= original != bytes;
            }
        }
    }

    pub(crate) fn into_flights(self) -> impl Iterator<Item = Flight> {
        self.flights.into_iter().flatten()
    }
}
