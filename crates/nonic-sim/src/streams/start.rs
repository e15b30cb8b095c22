//! The start of a connection: TCP, then start-up on both sides, then a queue pair attached to each end.

use super::model::{Mark, Phase, Trouble};
use super::observer::Observer;
use super::{Check, Streams};
use nonic_core::iwarp::StreamParams;
use nonic_core::iwarp::startup::{Startup, StartupEvent, StartupRequest};

impl Streams {
    /// The initiator asks TCP for a connection.
    pub(super) fn connect(&mut self, number: usize) -> Check {
        let latency_ns = self.pipes[2 * number].profile.latency_ns;
        let reachable = |side: &usize| self.hosts[self.model.programs[*side].host].up;
        let both_up = [2 * number, 2 * number + 1].iter().all(reachable);
        match self.connections[number].trouble {
            Trouble::Refused | Trouble::Unanswered => self.come_to_nothing(number),
            _ if !both_up => self.come_to_nothing(number),
            _ => {
                self.mark(2 * latency_ns, Mark::Connected(number));
                self.mark(self.connections[number].strike_after_ns, Mark::Strike(number));
                Ok(())
            }
        }
    }

    fn come_to_nothing(&mut self, number: usize) -> Check {
        for side in [2 * number, 2 * number + 1] {
            self.close_socket(side);
        }
        Ok(())
    }

    /// There is a TCP connection.
    pub(super) fn connected(&mut self, number: usize) -> Check {
        let (active, passive) = (2 * number, 2 * number + 1);
        let reachable = |side: &usize| self.hosts[self.model.programs[*side].host].up;
        let given_up = |side: &usize| matches!(self.sides[*side].phase, Phase::Closed);
        if ![active, passive].iter().all(reachable) || [active, passive].iter().any(given_up) {
            return self.come_to_nothing(number);
        }
        let now = self.now();
        let connection = &self.connections[number];
        let (ird, ord) = connection.depths[0];
        let request = StartupRequest {
            ird,
            ord,
            private_data: &connection.private_data[0],
        };
        let startup = Startup::connect(now, &connection.configs[0], &request)
            .map_err(|error| format!("start-up refused: {error}"))?;
        let answer = Startup::listen(now, &connection.configs[1]);
        self.sides[active].phase = Phase::Starting(Box::new(startup));
        self.sides[passive].phase = Phase::Starting(Box::new(answer));
        self.go_on_starting(active)?;
        self.go_on_starting(passive)
    }

    /// Start-up may have come to something.
    pub(super) fn go_on_starting(&mut self, number: usize) -> Check {
        loop {
            let side = &mut self.sides[number];
            let Phase::Starting(startup) = &mut side.phase else {
                return Ok(());
            };
            startup.poll_transmit(&mut side.unsent);
            let deadline = startup.poll_timeout();
            let (event, over) = (startup.poll_event(), startup.is_over());
            match event {
                Some(event) => self.started(number, event)?,
                None if over => {
                    // Refused, by this side or by circumstances: closed behind what is to be said.
                    self.write_unsent(number)?;
                    if self.sides[number].unsent.is_empty() {
                        self.close_socket(number);
                    }
                    return Ok(());
                }
                None => {
                    if let Some(at) = deadline {
                        self.mark_at(at.as_ns(), Mark::StartupTimer(number));
                    }
                    return self.write_unsent(number);
                }
            }
        }
    }

    fn started(&mut self, number: usize, event: StartupEvent) -> Check {
        self.tell(|| format!("side {number} {event:?}"));
        let connection = &self.connections[number / 2];
        let said = match &event {
            StartupEvent::ConnectRequest { private_data, .. } => Some((private_data, 0)),
            StartupEvent::Accepted { private_data, .. } => Some((private_data, 1)),
            _ => None,
        };
        if let Some((said, by)) = said {
            if !self.is_blind(number) && *said != connection.private_data[by] {
                return Err(format!(
                    "side {number}: private data is not what the other side said"
                ));
            }
        }
        match event {
            StartupEvent::ConnectRequest { .. } => {
                let delay_ns = match connection.trouble {
                    Trouble::SlowAccept => 20_000_000_000,
                    _ => connection.decide_after_ns,
                };
                self.mark(delay_ns, Mark::Decide(number));
                Ok(())
            }
            StartupEvent::Accepted { params, .. } => self.attach(number, params),
            StartupEvent::Rejected { private_data } => {
                let explained = connection.trouble == Trouble::Reject || self.is_blind(number);
                let intact = self.is_blind(number) || private_data == connection.private_data[1];
                match explained && intact {
                    true => Ok(()),
                    false => Err(format!("side {number}: rejected, and nobody did")),
                }
            }
            StartupEvent::Failed { error, .. } => {
                let explained = self.is_blind(number)
                    || !connection.causes.is_empty()
                    || matches!(connection.trouble, Trouble::SlowAccept | Trouble::GivesUp)
                    || self.sides[number].broken;
                match explained {
                    true => Ok(()),
                    false => Err(format!("side {number}: start-up failed: {error}")),
                }
            }
        }
    }

    /// The passive program answers.
    pub(super) fn decide(&mut self, number: usize) -> Check {
        let connection = &self.connections[number / 2];
        let side = &mut self.sides[number];
        let Phase::Starting(startup) = &mut side.phase else {
            return Ok(());
        };
        if !self.hosts[self.model.programs[number].host].up || startup.is_over() {
            return Ok(());
        }
        let (ird, ord) = connection.depths[1];
        let answer = StartupRequest {
            ird,
            ord,
            private_data: &connection.private_data[1],
        };
        if connection.trouble == Trouble::Reject {
            startup
                .reject(answer.private_data)
                .map_err(|error| format!("side {number}: reject refused: {error}"))?;
        } else {
            let params = startup.accept(&answer);
            let params = params.map_err(|error| format!("side {number}: accept refused: {error}"))?;
            startup.poll_transmit(&mut side.unsent);
            self.attach(number, params)?;
        }
        self.go_on_starting(number)?;
        let host = self.model.programs[number].host;
        self.write_unsent(number)?;
        self.attend(host)
    }

    fn attach(&mut self, number: usize, params: StreamParams) -> Check {
        let now = self.now();
        let (side, program) = (&mut self.sides[number], &self.model.programs[number]);
        if side.leaving || side.gone {
            // The program has given up meanwhile.
            self.close_socket(number);
            return Ok(());
        }
        self.hosts[program.host]
            .nic
            .stream_attach(now, program.qpn, &params)
            .map_err(|error| format!("side {number}: stream_attach refused: {error}"))?;
        side.phase = Phase::Attached;
        side.attached_ns = now.as_ns();
        side.params = Some(params);
        self.observers[number] = Some(Observer::new(side.mss, &params));
        let ends = [self.sides[number & !1].params, self.sides[number | 1].params];
        if let ([Some(active), Some(passive)], false) = (ends, self.is_blind(number)) {
            let agree = active.crc == passive.crc
                && active.rtr == passive.rtr
                && active.ord <= passive.ird
                && passive.ord <= active.ird;
            if !agree {
                return Err(format!("they disagree: {active:?}, {passive:?}"));
            }
        }
        Ok(())
    }
}
