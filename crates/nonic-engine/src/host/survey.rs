//! The survey: finds out which number each process has among the sockets at port 4791.
//!
//! A process sends a datagram to every number in turn ([`Question`]), which the program of [`steering`](super::steering)
//! delivers to the socket with that number; the process that receives it tells what it owns ([`Answer`]). Beyond the last
//! number the kernel chooses by sender, so one process answers a second time: that is the end. A process that is stopped
//! does not answer and is left out.
//!
//! [`Steering`] decides when to survey: when the process begins to listen or to talk to another host, and when packets of
//! its own come through other processes. It does no I/O: the caller sends its questions and attaches the program for what
//! it finds.
//!
//! # Trust
//!
//! The kernel delivers questions to sockets of one user only. An answer must carry the question's random token, so no other
//! process can give one. Answers go to the host itself and nowhere else.

use std::collections::BTreeMap;

use super::Block;
use super::steering::{Member, SURVEY_OPCODE};

const VERSION: u8 = 1;
const QUESTION: u8 = 0;
const ANSWER: u8 = 1;

/// How many numbers are asked for at once.
const BATCH: u32 = 16;
/// No more processes than this are looked for: beyond, packets are handed over.
const MAX_INDEX: u32 = 256;
/// How long a survey waits for answers. A busy process looks at the port about once in a millisecond, if it is given a
/// processor. The survey waits so long only if a process does not answer.
const PATIENCE_NS: u64 = 50_000_000;
/// The shortest time between two surveys; doubles each time packets keep coming through other processes all the same.
const SHORTEST_PAUSE_NS: u64 = 100_000_000;
const LONGEST_PAUSE_NS: u64 = 60_000_000_000;
/// So many batches of packets that came through other processes are worth a survey.
const STRAYS: u32 = 4;
/// The most that an answer tells of; the rest is handed over.
pub(crate) const MAX_ENTRIES: usize = 128;

/// The question to a process: what do you own? Sent to the socket with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) index: u32,
    pub(crate) token: u64,
}

impl Question {
    const LEN: usize = 16;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..3].copy_from_slice(&[SURVEY_OPCODE, VERSION, QUESTION]);
        bytes[4..8].copy_from_slice(&self.index.to_be_bytes());
        bytes[8..].copy_from_slice(&self.token.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<{ Self::LEN }>()?;
        decode_header(header, QUESTION).filter(|_| rest.is_empty())
    }
}

/// The answer of the process whose socket has the number: what it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) member: Member,
    pub(crate) token: u64,
}

impl Answer {
    /// The answer of a process that received a question.
    pub(crate) fn to(question: Question, blocks: Vec<Block>, services: Vec<u32>) -> Self {
        Answer {
            member: Member {
                index: question.index,
                blocks,
                services,
            },
            token: question.token,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let question = Question {
            index: self.member.index,
            token: self.token,
        };
        let blocks = &self.member.blocks[..self.member.blocks.len().min(MAX_ENTRIES)];
        let services = &self.member.services[..self.member.services.len().min(MAX_ENTRIES)];
        let mut bytes = question.encode().to_vec();
        bytes[2] = ANSWER;
        bytes.extend([blocks.len() as u8, services.len() as u8]);
        bytes.extend(blocks.iter().flat_map(|block| block.number().to_be_bytes()));
        bytes.extend(services.iter().flat_map(|service| service.to_be_bytes()));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<{ Question::LEN }>()?;
        let question = decode_header(header, ANSWER)?;
        let ([blocks, services], rest) = rest.split_first_chunk()?;
        let (blocks, services) = (usize::from(*blocks), usize::from(*services));
        if rest.len() != 2 * blocks + 4 * services {
            return None;
        }
        let (blocks, services) = rest.split_at(2 * blocks);
        let blocks = blocks.chunks_exact(2).filter_map(|number| number.first_chunk());
        let services = services
            .chunks_exact(4)
            .filter_map(|service| service.first_chunk());
        let blocks: Option<Vec<Block>> = blocks
            .map(|number| Block::new(u16::from_be_bytes(*number)))
            .collect();
        let services = services.map(|service| u32::from_be_bytes(*service));
        Some(Answer::to(question, blocks?, services.collect()))
    }
}

fn decode_header(bytes: &[u8; Question::LEN], kind: u8) -> Option<Question> {
    let [opcode, version, found, zero, i0, i1, i2, i3, token @ ..] = *bytes;
    ([opcode, version, found, zero] == [SURVEY_OPCODE, VERSION, kind, 0]).then_some(Question {
        index: u32::from_be_bytes([i0, i1, i2, i3]),
        token: u64::from_be_bytes(token),
    })
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send this to the port.
    Ask(Question),
    /// Attach a program for these. An empty one serves the survey itself.
    Attach(Vec<Member>),
}

/// When to look, and what was found.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    wanted: bool,
    /// There was one already.
    surveyed: bool,
    /// Batches of packets that came through other processes since the last survey.
    strays: u32,
    /// No survey before this.
    not_before_ns: u64,
    pause_ns: u64,
    survey: Option<Survey>,
    /// The survey that has ended.
    ended: Option<Ended>,
}

#[derive(Debug)]
struct Ended {
    token: u64,
    /// The processes that had answered, by their own ports.
    ports: Vec<u16>,
}

#[derive(Debug)]
struct Survey {
    token: u64,
    /// The first number that was not asked for.
    asked: u32,
    /// The end of the batch that is being asked for.
    batch_end: u32,
    deadline_ns: u64,
    /// By the port that the answer came from, which is the answering process's own.
    found: BTreeMap<u16, Member>,
    /// A process with a lower number answered for this one: no socket has this number or one above it.
    end: Option<u32>,
    /// The program that delivers questions is known to be attached.
    served: bool,
}

impl Steering {
    /// Packets for this process may come from another host from now on.
    pub(crate) fn want(&mut self) {
        self.wanted |= !self.surveyed;
    }

    /// This process owns something more, which the last survey does not tell of. There is no pause before the next one,
    /// since a caller waits for it.
    pub(crate) fn want_again(&mut self) {
        self.wanted = true;
        self.not_before_ns = 0;
    }

    /// Packets of ours came through another process.
    pub(crate) fn stray(&mut self) {
        self.strays = self.strays.saturating_add(1);
        self.wanted |= self.strays >= STRAYS;
    }

    /// When [`Steering::poll`] has something to do. Changes with every call.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        match &self.survey {
            Some(survey) if survey.has_more_to_ask() || survey.is_complete() => Some(0),
            Some(survey) => Some(survey.deadline_ns),
            None => self.wanted.then_some(self.not_before_ns),
        }
    }

    /// What is to be done now; call until `None`. `token` makes a random number.
    pub(crate) fn poll(&mut self, now_ns: u64, mut token: impl FnMut() -> u64) -> Option<Step> {
        if self.survey.is_none() && self.wanted && now_ns >= self.not_before_ns {
            self.pause(now_ns);
            // What we attached once is there, or what another process replaced it with, as long as we are.
            self.begin(now_ns, token(), self.ended.is_some());
        }
        let survey = self.survey.as_mut()?;
        if survey.has_more_to_ask() {
            return Some(Step::Ask(survey.ask()));
        }
        if !survey.is_complete() && now_ns < survey.deadline_ns {
            return None;
        }
        if !survey.served && survey.found.len() < 2 {
            // One process answers for all, or none: no process has attached a program yet, or there is only one process.
            self.begin(now_ns, token(), true);
            return Some(Step::Attach(Vec::new()));
        }
        if survey.end.is_none() && survey.last_batch_was_answered() && survey.asked < MAX_INDEX {
            survey.next_batch(now_ns);
            return Some(Step::Ask(survey.ask()));
        }
        let survey = self.survey.take()?;
        self.ended = Some(Ended {
            token: survey.token,
            ports: survey.found.keys().copied().collect(),
        });
        Some(Step::Attach(survey.found.into_values().collect()))
    }

    /// Takes an answer that came from this port of the host itself. One that comes too late is worth another survey.
    pub(crate) fn answered(&mut self, port: u16, answer: Answer) {
        let is_late = |ended: &Ended| ended.token == answer.token && !ended.ports.contains(&port);
        if self.ended.as_ref().is_some_and(is_late) {
            self.strays = self.strays.max(STRAYS);
            self.wanted = true;
        }
        let Some(survey) = self.survey.as_mut().filter(|survey| survey.token == answer.token) else {
            return;
        };
        if answer.member.index >= survey.asked {
            return;
        }
        match survey.found.get_mut(&port) {
            None => {
                survey.found.insert(port, answer.member);
            }
            Some(known) if known.index == answer.member.index => {}
            Some(known) => {
                let beyond = known.index.max(answer.member.index);
                known.index = known.index.min(answer.member.index);
                survey.end = Some(survey.end.map_or(beyond, |end| end.min(beyond)));
            }
        }
    }

    /// Whether there is nothing to be done at this moment.
    pub(crate) fn is_settled(&self, now_ns: u64) -> bool {
        self.survey.is_none() && !(self.wanted && now_ns >= self.not_before_ns)
    }

    /// Sets how long it is until the next survey.
    fn pause(&mut self, now_ns: u64) {
        // Packets that went astray soon after the last survey do so for another reason: do not insist.
        let since_ns = now_ns.saturating_sub(self.not_before_ns);
        let insisting = self.strays >= STRAYS && self.pause_ns > 0 && since_ns < self.pause_ns;
        self.pause_ns = match insisting {
            true => (2 * self.pause_ns).min(LONGEST_PAUSE_NS),
            false => SHORTEST_PAUSE_NS,
        };
        self.not_before_ns = now_ns.saturating_add(self.pause_ns);
    }

    fn begin(&mut self, now_ns: u64, token: u64, served: bool) {
        (self.wanted, self.surveyed, self.strays) = (false, true, 0);
        self.survey = Some(Survey {
            token,
            asked: 0,
            batch_end: BATCH,
            deadline_ns: now_ns.saturating_add(PATIENCE_NS),
            found: BTreeMap::new(),
            end: None,
            served,
        });
    }
}

impl Survey {
    fn has_more_to_ask(&self) -> bool {
        self.asked < self.batch_end
    }

    /// Whether every process there is has answered.
    fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| self.found.len() >= end as usize)
    }

    fn last_batch_was_answered(&self) -> bool {
        let first = self.batch_end - BATCH;
        self.found.values().any(|member| member.index >= first)
    }

    fn ask(&mut self) -> Question {
        self.asked += 1;
        Question {
            index: self.asked - 1,
            token: self.token,
        }
    }

    fn next_batch(&mut self, now_ns: u64) {
        self.batch_end = self.asked + BATCH;
        self.deadline_ns = now_ns.saturating_add(PATIENCE_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sockets at the port as the kernel has them: a number without a socket goes to `fallback`. `None` is stopped.
    struct Group {
        members: Vec<Option<u16>>,
        fallback: usize,
        program: bool,
    }

    impl Group {
        fn delivered_to(&self, index: u32) -> Option<u16> {
            let index = index as usize;
            let chosen = match self.program && index < self.members.len() {
                true => index,
                false => self.fallback,
            };
            self.members[chosen]
        }

        /// Runs a survey to its end; what was attached, and how long it took.
        fn survey(&mut self, steering: &mut Steering) -> (Vec<Vec<Member>>, u64) {
            let mut attached = Vec::new();
            let mut now_ns = steering.not_before_ns;
            let started_ns = now_ns;
            // Every survey of a test has tokens of its own.
            let mut token = started_ns;
            loop {
                let step = steering.poll(now_ns, || {
                    token += 1;
                    token
                });
                match step {
                    Some(Step::Ask(question)) => {
                        let question = Question::decode(&question.encode()).expect("its own format");
                        if let Some(port) = self.delivered_to(question.index) {
                            let block = Block::new(port).expect("ports of this test are blocks too");
                            let answer = Answer::to(question, vec![block], vec![u32::from(port)]);
                            let answer = Answer::decode(&answer.encode()).expect("its own format");
                            steering.answered(port, answer);
                        }
                    }
                    Some(Step::Attach(members)) => {
                        self.program = true;
                        attached.push(members);
                    }
                    None => match steering.next_deadline_ns() {
                        Some(at_ns) => now_ns = now_ns.max(at_ns),
                        None => return (attached, now_ns - started_ns),
                    },
                }
            }
        }
    }

    fn wanting() -> Steering {
        let mut steering = Steering::default();
        steering.want();
        steering
    }

    fn indices(members: &[Member]) -> Vec<(u32, u32)> {
        let mut found: Vec<_> = members
            .iter()
            .map(|member| (member.index, member.services[0]))
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn everybody_is_found_at_its_number_without_waiting() {
        for count in [1_u16, 2, 3, 15, 16, 17, 40] {
            for fallback in [0, usize::from(count) - 1] {
                for program in [true, false] {
                    let members = (1..=count).map(Some).collect();
                    let mut group = Group {
                        members,
                        fallback,
                        program,
                    };
                    let (attached, took_ns) = group.survey(&mut wanting());
                    let expected: Vec<(u32, u32)> =
                        (0..u32::from(count)).map(|index| (index, index + 1)).collect();
                    assert_eq!(
                        indices(attached.last().expect("one")),
                        expected,
                        "{count} {fallback}"
                    );
                    // Only a batch that ends with the last process leaves open whether there are more.
                    assert!(took_ns < 4 * PATIENCE_NS, "{count} processes took {took_ns} ns");
                }
            }
        }
    }

    #[test]
    fn a_stopped_process_is_left_out() {
        for fallback in [0, 1, 2] {
            let members = vec![Some(1), None, Some(3)];
            let mut group = Group {
                members,
                fallback,
                program: false,
            };
            let (attached, _) = group.survey(&mut wanting());
            assert_eq!(
                indices(attached.last().expect("one")),
                [(0, 1), (2, 3)],
                "{fallback}"
            );
        }
    }

    #[test]
    fn who_answers_too_late_is_found_by_the_next_survey() {
        let mut group = Group {
            members: vec![Some(1), None],
            fallback: 0,
            program: true,
        };
        let mut steering = wanting();
        group.survey(&mut steering);
        let token = steering.ended.as_ref().expect("it has ended").token;
        let late = Answer::to(Question { index: 1, token }, Vec::new(), Vec::new());
        steering.answered(1, late.clone());
        assert_eq!(steering.next_deadline_ns(), None, "one that had answered before");
        steering.answered(2, late);
        group.members[1] = Some(2);
        let (attached, _) = group.survey(&mut steering);
        assert_eq!(
            indices(attached.last().expect("another survey")),
            [(0, 1), (1, 2)]
        );
    }

    #[test]
    fn an_answer_without_the_token_or_to_no_question_is_nothing() {
        let mut steering = wanting();
        let Some(Step::Ask(question)) = steering.poll(0, || 7) else {
            panic!("it asks");
        };
        let forged = Question { token: 8, ..question };
        steering.answered(1, Answer::to(forged, Vec::new(), Vec::new()));
        let unasked = Question { index: 5, ..question };
        steering.answered(1, Answer::to(unasked, Vec::new(), Vec::new()));
        assert!(steering.survey.expect("under way").found.is_empty());
    }

    #[test]
    fn strays_ask_for_a_survey_and_are_not_insisted_on() {
        let mut group = Group {
            members: vec![Some(1), Some(2)],
            fallback: 0,
            program: true,
        };
        let mut steering = Steering::default();
        assert_eq!(steering.next_deadline_ns(), None);
        let mut due = Vec::new();
        for _ in 0..5 {
            (0..STRAYS).for_each(|_| steering.stray());
            due.push(steering.next_deadline_ns().expect("wanted"));
            group.survey(&mut steering);
        }
        let pauses: Vec<u64> = due
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) / SHORTEST_PAUSE_NS)
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8]);
    }

    #[test]
    fn datagrams_that_are_neither_are_refused() {
        let question = Question { index: 1, token: 2 };
        let answer = Answer::to(question, vec![Block::FIRST], vec![3]).encode();
        assert!(Answer::decode(&answer).is_some());
        assert_eq!(Question::decode(&answer), None);
        assert_eq!(Answer::decode(&question.encode()), None);
        for end in 0..answer.len() {
            assert_eq!(Answer::decode(&answer[..end]), None);
        }
        for place in 0..4 {
            let mut wrong = answer.clone();
            wrong[place] ^= 4;
            assert_eq!(Answer::decode(&wrong), None);
        }
        let mut no_block = answer;
        no_block[18..20].copy_from_slice(&[0, 0]);
        assert_eq!(Answer::decode(&no_block), None);
    }
}
