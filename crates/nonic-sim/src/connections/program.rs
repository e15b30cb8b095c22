//! The programs: what they do on each event, and whether they should have got it.

use super::plan::{Ending, Reaction};
use super::{Check, Connections, DATAGRAMS, Mark, NOBODY, SERVED, Side};
use nonic_core::cm::{
    AcceptParams, AnswerParams, CmEvent, CmState, ConnectParams, ConnectRequest, ConnectResponse,
    ConnectionId, RejectParams, ResolveParams, Route, SidrRequest, SidrResponse,
};
use nonic_core::{Psn, Qpn};
use nonic_wire::cm::{IpHeader, RejectReason, SidrStatus};

/// What a first sequence number must be, so that it shows when one goes astray.
fn psn_of(attempt: usize, qpn: u32) -> Psn {
    Psn::new((attempt as u32) << 12 ^ qpn)
}

impl Connections {
    pub(super) fn connect(&mut self, index: usize) -> Check {
        let intention = self.plan.intentions[index];
        let host = intention.from;
        let now = self.fabric.now();
        let qpn = self.fresh_qpn(host);
        let route = Route {
            local: self.hosts[host].gateway.ip,
            remote: self.hosts[intention.to].gateway.ip,
        };
        let ip = Some(IpHeader {
            source_port: 1,
            source: route.local,
            destination: route.remote,
        });
        let tag = (index as u32).to_be_bytes();
        let cm = &mut self.hosts[host].gateway.cm;
        let begun = if intention.datagram {
            cm.resolve(
                now,
                &ResolveParams {
                    route,
                    service_id: DATAGRAMS,
                    ip,
                    private_data: &tag,
                },
            )
        } else {
            cm.connect(
                now,
                &ConnectParams {
                    ip,
                    private_data: &tag,
                    ..ConnectParams::new(
                        route,
                        if intention.nobody { NOBODY } else { SERVED },
                        Qpn::new(qpn),
                        psn_of(index, qpn),
                    )
                },
            )
        };
        let id = begun.map_err(|error| format!("attempt {index} refused: {error}"))?;
        self.tally.attempts += 1;
        self.attempts[index].begun = true;
        self.attempts[index].qpn = qpn;
        self.know(host, id, index, true, qpn)?;
        if let Some(delay_ns) = intention.abandoned_at_ns {
            let life = self.hosts[host].life;
            self.fabric.mark(delay_ns, Mark::Impatient(host, life, id));
        }
        self.attend(host)
    }

    fn fresh_qpn(&mut self, host: usize) -> u32 {
        let host = &mut self.hosts[host];
        host.next_qpn += 1;
        host.next_qpn
    }

    fn know(&mut self, host: usize, id: ConnectionId, attempt: usize, active: bool, qpn: u32) -> Check {
        let side = Side {
            attempt,
            active,
            qpn,
            established: false,
            disconnected: false,
        };
        match self.hosts[host].sides.insert(id, side) {
            None => Ok(()),
            Some(old) => Err(format!(
                "{id:?} was given to attempts {} and {attempt}",
                old.attempt
            )),
        }
    }

    /// The side an event is about.
    fn side(&mut self, host: usize, id: ConnectionId) -> Result<&mut Side, String> {
        let side = self.hosts[host].sides.get_mut(&id);
        side.ok_or_else(|| format!("host {host} was told of {id:?}, which it does not have"))
    }

    pub(super) fn told(&mut self, host: usize, event: CmEvent) -> Check {
        let id = event.connection();
        match event {
            CmEvent::Request(request) => self.requested(host, &request),
            CmEvent::SidrRequest(request) => self.asked(host, &request),
            CmEvent::Response(response) => self.responded(host, &response),
            CmEvent::SidrResponse(response) => self.answered(host, &response),
            CmEvent::Established { .. } => self.established(host, id),
            CmEvent::Rejected { reason, .. } => self.rejected(host, id, reason),
            CmEvent::Unreachable { .. } => self.unreachable(host, id),
            CmEvent::Disconnected { .. } => self.disconnected(host, id),
            CmEvent::TimewaitExit { .. } => {
                let disconnected = self.side(host, id)?.disconnected;
                self.hosts[host].sides.remove(&id);
                if disconnected {
                    Ok(())
                } else {
                    Err(format!("{id:?} left timewait without having been disconnected"))
                }
            }
        }
    }

    /// A request is new to this life of the host.
    fn seen(&mut self, host: usize, private_data: &[u8]) -> Result<usize, String> {
        let tag = private_data.first_chunk::<4>().ok_or("private data was cut")?;
        let index = u32::from_be_bytes(*tag) as usize;
        let life = self.hosts[host].life;
        let attempt = self.attempts.get_mut(index).ok_or("private data was damaged")?;
        if self.plan.intentions[index].to != host {
            return Err(format!("attempt {index} reached the wrong host"));
        }
        // An earlier life of the host may have asked the peer for time (MRA): more than this life, which cannot know, remembers its answer.
        let may_have_waited = attempt.seen.iter().any(|seen| *seen < life);
        if attempt.seen.contains(&life) && !may_have_waited {
            return Err(format!("attempt {index} reached its program twice"));
        }
        attempt.seen.push(life);
        Ok(index)
    }

    fn requested(&mut self, host: usize, request: &ConnectRequest) -> Check {
        let index = self.seen(host, &request.private_data)?;
        let (intention, attempt) = (self.plan.intentions[index], &self.attempts[index]);
        if intention.nobody || intention.datagram {
            return Err(format!("attempt {index} asked for something else"));
        }
        let expected = (Qpn::new(attempt.qpn), psn_of(index, attempt.qpn));
        if (request.remote_qpn, request.starting_psn) != expected {
            return Err(format!("attempt {index} arrived with other numbers: {request:?}"));
        }
        self.know(host, request.connection, index, false, 0)?;
        let (life, id) = (self.hosts[host].life, request.connection);
        self.fabric.mark(
            intention.passive_thinks_ns,
            Mark::PassiveDecides { host, life, id },
        );
        Ok(())
    }

    fn asked(&mut self, host: usize, request: &SidrRequest) -> Check {
        let index = self.seen(host, &request.private_data)?;
        self.know(host, request.connection, index, false, 0)?;
        let (life, id) = (self.hosts[host].life, request.connection);
        let delay_ns = self.plan.intentions[index].passive_thinks_ns / 8;
        self.fabric
            .mark(delay_ns, Mark::PassiveDecides { host, life, id });
        Ok(())
    }

    pub(super) fn passive_decides(&mut self, host: usize, life: u32, id: ConnectionId) -> Check {
        let Some(side) = self.current(host, life, id) else {
            return Ok(());
        };
        let index = side.attempt;
        let intention = self.plan.intentions[index];
        let now = self.fabric.now();
        let qpn = self.fresh_qpn(host);
        let cm = &mut self.hosts[host].gateway.cm;
        let outcome = match (intention.passive, intention.datagram) {
            (Reaction::GoOn, false) => {
                let params = AcceptParams::new(Qpn::new(qpn), psn_of(index, qpn));
                cm.accept(now, id, &params)
            }
            (Reaction::GoOn, true) => cm.answer(
                now,
                id,
                &AnswerParams {
                    status: SidrStatus::VALID,
                    qpn: Qpn::new(qpn),
                    qkey: qpn,
                    info: &[],
                    private_data: &[],
                },
            ),
            (Reaction::Reject, false) => cm.reject(now, id, &RejectParams::default()),
            _ => cm.abandon(now, id),
        };
        outcome.map_err(|error| format!("attempt {index}, passive {:?}: {error}", intention.passive))?;
        let attempt = &mut self.attempts[index];
        if intention.passive == Reaction::GoOn {
            attempt.offered.push(qpn);
        } else {
            attempt.passive_rejected = true;
            attempt.ended = true;
        }
        if intention.passive != Reaction::GoOn || intention.datagram {
            self.hosts[host].sides.remove(&id);
        } else {
            self.side(host, id)?.qpn = qpn;
        }
        self.attend(host)
    }

    fn responded(&mut self, host: usize, response: &ConnectResponse) -> Check {
        let id = response.connection;
        let index = self.side(host, id)?.attempt;
        let attempt = &mut self.attempts[index];
        let qpn = response.remote_qpn.value();
        if !attempt.offered.contains(&qpn) || response.starting_psn != psn_of(index, qpn) {
            return Err(format!(
                "attempt {index} was answered with what nobody offered: {response:?}"
            ));
        }
        if attempt.taken.replace(qpn).is_some() {
            return Err(format!("attempt {index} was answered twice"));
        }
        let life = self.hosts[host].life;
        let delay_ns = self.plan.intentions[index].active_thinks_ns;
        self.fabric.mark(delay_ns, Mark::ActiveDecides { host, life, id });
        Ok(())
    }

    fn answered(&mut self, host: usize, response: &SidrResponse) -> Check {
        let index = self.side(host, response.connection)?.attempt;
        self.hosts[host].sides.remove(&response.connection);
        let attempt = &self.attempts[index];
        let fits = match response.status {
            SidrStatus::VALID => attempt.offered.contains(&response.qpn.value()),
            SidrStatus::REJECT => attempt.passive_rejected,
            _ => false,
        };
        if fits {
            Ok(())
        } else {
            Err(format!("attempt {index} got an answer nobody gave: {response:?}"))
        }
    }

    pub(super) fn active_decides(&mut self, host: usize, life: u32, id: ConnectionId) -> Check {
        let Some(side) = self.current(host, life, id).filter(|side| !side.disconnected) else {
            return Ok(());
        };
        let index = side.attempt;
        let now = self.fabric.now();
        let cm = &mut self.hosts[host].gateway.cm;
        let reaction = self.plan.intentions[index].active;
        let outcome = match reaction {
            Reaction::GoOn => cm.establish(now, id, &[]),
            Reaction::Reject => cm.reject(now, id, &RejectParams::default()),
            Reaction::Abandon => cm.abandon(now, id),
        };
        outcome.map_err(|error| format!("attempt {index}, active {reaction:?}: {error}"))?;
        if reaction == Reaction::GoOn {
            self.side(host, id)?.established = true;
            self.plan_the_end(host, id, index, true);
        } else {
            self.attempts[index].active_rejected = true;
            self.attempts[index].ended = true;
            self.hosts[host].sides.remove(&id);
        }
        self.attend(host)
    }

    fn established(&mut self, host: usize, id: ConnectionId) -> Check {
        let side = *self.side(host, id)?;
        let index = side.attempt;
        let attempt = &mut self.attempts[index];
        // Never before the active side, and only with the queue pair it took.
        if side.active || attempt.taken != Some(side.qpn) || attempt.active_rejected {
            return Err(format!(
                "attempt {index}: passive side established by nobody: {attempt:?}"
            ));
        }
        attempt.passive_established += 1;
        if attempt.passive_established > 1 {
            return Err(format!("attempt {index} was established twice"));
        }
        self.tally.established += 1;
        self.side(host, id)?.established = true;
        self.plan_the_end(host, id, index, false);
        Ok(())
    }

    fn plan_the_end(&mut self, host: usize, id: ConnectionId, index: usize, active: bool) {
        let intention = self.plan.intentions[index];
        let mine = match intention.ended_by {
            Ending::Nobody => false,
            Ending::Both => true,
            Ending::Active | Ending::ActiveAbandons => active,
            Ending::Passive | Ending::PassiveAbandons => !active,
        };
        if mine {
            let life = self.hosts[host].life;
            self.fabric.mark(intention.lives_ns, Mark::End { host, life, id });
        }
    }

    pub(super) fn end(&mut self, host: usize, life: u32, id: ConnectionId) -> Check {
        let Some(side) = self.current(host, life, id) else {
            return Ok(());
        };
        let now = self.fabric.now();
        let cm = &mut self.hosts[host].gateway.cm;
        let abandons = matches!(
            self.plan.intentions[side.attempt].ended_by,
            Ending::ActiveAbandons | Ending::PassiveAbandons
        );
        let outcome = if abandons {
            self.hosts[host].sides.remove(&id);
            self.hosts[host].gateway.cm.abandon(now, id)
        } else {
            cm.disconnect(now, id, &[])
        };
        outcome.map_err(|error| format!("attempt {} cannot be ended: {error}", side.attempt))?;
        self.attempts[side.attempt].ended = true;
        self.attend(host)
    }

    pub(super) fn lose_patience(&mut self, host: usize, life: u32, id: ConnectionId) -> Check {
        let Some(side) = self.current(host, life, id).filter(|side| !side.disconnected) else {
            return Ok(());
        };
        let attempt = &mut self.attempts[side.attempt];
        attempt.ended = true;
        attempt.active_rejected |= !side.established;
        self.hosts[host].sides.remove(&id);
        let now = self.fabric.now();
        let outcome = self.hosts[host].gateway.cm.abandon(now, id);
        outcome.map_err(|error| format!("attempt {} cannot be given up: {error}", side.attempt))?;
        self.attend(host)
    }

    fn rejected(&mut self, host: usize, id: ConnectionId, reason: RejectReason) -> Check {
        let side = *self.side(host, id)?;
        self.hosts[host].sides.remove(&id);
        self.tally.refused += 1;
        let intention = self.plan.intentions[side.attempt];
        let attempt = &mut self.attempts[side.attempt];
        let disturbed = attempt.orphaned || !self.plan.is_quiet();
        let fits = match reason {
            RejectReason::INVALID_SERVICE_ID => intention.nobody,
            RejectReason::CONSUMER_DEFINED if side.active => attempt.passive_rejected,
            RejectReason::CONSUMER_DEFINED => attempt.active_rejected,
            // The other side gave up, was told so, or has another life.
            RejectReason::TIMEOUT | RejectReason::INVALID_COMM_ID => attempt.ended || disturbed,
            RejectReason::STALE_CONN => disturbed,
            _ => false,
        };
        attempt.ended = true;
        if fits {
            Ok(())
        } else {
            Err(format!(
                "attempt {} refused without a cause ({reason}): {attempt:?}",
                side.attempt
            ))
        }
    }

    fn unreachable(&mut self, host: usize, id: ConnectionId) -> Check {
        let side = *self.side(host, id)?;
        self.hosts[host].sides.remove(&id);
        self.tally.unreachable += 1;
        let life = self.hosts[host].life;
        let attempt = &mut self.attempts[side.attempt];
        attempt.ended = true;
        if !side.active {
            // A request whose answer was never taken is not remembered: when it is repeated, it is a new one.
            attempt.seen.retain(|seen| *seen != life);
        }
        if self.plan.is_quiet() {
            return Err(format!(
                "attempt {} got no answer in a quiet network: {attempt:?}",
                side.attempt
            ));
        }
        Ok(())
    }

    fn disconnected(&mut self, host: usize, id: ConnectionId) -> Check {
        let side = self.side(host, id)?;
        if side.disconnected {
            return Err(format!("{id:?} was disconnected twice"));
        }
        side.disconnected = true;
        let index = side.attempt;
        let attempt = &self.attempts[index];
        if attempt.ended || attempt.orphaned || self.ending || self.stale_peer(index) {
            Ok(())
        } else {
            Err(format!("attempt {index} was disconnected by nobody: {attempt:?}"))
        }
    }

    /// Whether the peer may have begun anew with the queue pair of this attempt.
    fn stale_peer(&self, index: usize) -> bool {
        let intention = self.plan.intentions[index];
        let died = |host: usize| self.hosts[host].life > 0;
        died(intention.from) || died(intention.to)
    }

    /// The side, if the program still has it in this life.
    fn current(&self, host: usize, life: u32, id: ConnectionId) -> Option<Side> {
        let host = &self.hosts[host];
        (host.life == life).then(|| host.sides.get(&id).copied())?
    }

    /// Ends what is left, as a program does whose queue pair has failed.
    pub(super) fn finish(&mut self, host: usize, id: ConnectionId) -> Check {
        let now = self.fabric.now();
        let cm = &mut self.hosts[host].gateway.cm;
        let state = cm.state(id);
        let outcome = match state {
            None => return Err(format!("{id:?} vanished without a word")),
            Some(CmState::Established | CmState::DreqSent | CmState::TimeWait) => cm.disconnect(now, id, &[]),
            Some(state) => return Err(format!("{id:?} hangs in {state}")),
        };
        outcome.map_err(|error| format!("{id:?} cannot be ended: {error}"))
    }
}
