//! Runs jobs side by side, and tells of them in the order of the list: what a run prints does not depend on which job ended first.
//!
//! Each worker has a place of its own, which no two jobs use at the same time: ports, multicast groups and captures of one job are
//! out of the reach of all others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Runs every job at one of the places, a thread to each place. `tell` is called in the order of the jobs, as soon as all before it
/// have ended; the results are in that order, too.
pub fn in_order<Place: Sync, Job: Sync, Done: Send>(
    places: &[Place],
    jobs: &[Job],
    run: impl Fn(&Place, &Job) -> Done + Sync,
    mut tell: impl FnMut(&Job, &Done),
) -> Vec<Done> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let (next, run) = (&next, &run);
    std::thread::scope(|scope| {
        for place in places {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some((index, job)) = take(next, jobs) {
                    // The receiver is there for as long as the scope.
                    let _ = sender.send((index, run(place, job)));
                }
            });
        }
        // The workers' own are left: what they send ends with the last of them.
        drop(sender);
        let mut early: Vec<Option<Done>> = jobs.iter().map(|_| None).collect();
        let mut ended = Vec::with_capacity(jobs.len());
        for (index, done) in receiver {
            early[index] = Some(done);
            while let Some(done) = early.get_mut(ended.len()).and_then(Option::take) {
                tell(&jobs[ended.len()], &done);
                ended.push(done);
            }
        }
        ended
    })
}

/// The next job that no worker has taken.
fn take<'a, Job>(next: &AtomicUsize, jobs: &'a [Job]) -> Option<(usize, &'a Job)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(index).map(|job| (index, job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    /// The first job ends when the last has.
    #[test]
    fn what_ends_early_is_told_late() {
        let last_has_ended = Barrier::new(2);
        let run = |_: &(), job: &usize| {
            if matches!(job, 0 | 9) {
                last_has_ended.wait();
            }
            job * 2
        };
        let jobs: Vec<usize> = (0..10).collect();
        let mut told = Vec::new();
        let done = in_order(&[(), ()], &jobs, run, |job, done| told.push((*job, *done)));
        assert_eq!(done, jobs.iter().map(|job| job * 2).collect::<Vec<_>>());
        assert_eq!(told, jobs.iter().map(|job| (*job, job * 2)).collect::<Vec<_>>());
    }

    #[test]
    fn a_place_has_one_job_at_a_time() {
        let places = [const { AtomicBool::new(false) }; 4];
        let run = |place: &AtomicBool, _: &usize| {
            assert!(!place.swap(true, Ordering::SeqCst), "two at once");
            std::thread::yield_now();
            place.store(false, Ordering::SeqCst);
        };
        let jobs: Vec<usize> = (0..1000).collect();
        assert_eq!(in_order(&places, &jobs, run, |_, ()| ()).len(), jobs.len());
    }

    #[test]
    fn nothing_to_do_is_done_at_once() {
        let done = in_order(&[()], &[], |(), job: &u8| *job, |_, _| ());
        assert!(done.is_empty());
    }
}
