//! Figures in what the programs of others print.

use anyhow::{Context, Result};

/// What is found in a row of a latency test, in microseconds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Latency {
    pub(super) typical_us: f64,
    pub(super) p99_us: Option<f64>,
}

/// perftest, a latency test: the typical time and that of the slowest in a hundred.
pub(super) fn perftest_latency(printed: &str) -> Result<Latency> {
    let row = perftest_row(printed)?;
    Ok(Latency {
        typical_us: number(&row, 4)?,
        p99_us: Some(number(&row, 7)?),
    })
}

/// perftest, a bandwidth test: messages per second, which it prints with more digits than bytes.
pub(super) fn perftest_rate(printed: &str) -> Result<f64> {
    Ok(number(&perftest_row(printed)?, 4)? * 1e6)
}

/// The only line of perftest's table.
fn perftest_row(printed: &str) -> Result<Vec<&str>> {
    let mut lines = printed
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let row = lines
        .nth(1)
        .with_context(|| format!("perftest printed no table: {printed}"))?;
    Ok(row.split_whitespace().collect())
}

/// ucx_perftest -v: the median time, in microseconds.
pub(super) fn ucx_latency(printed: &str) -> Result<Latency> {
    Ok(Latency {
        typical_us: number(&ucx_row(printed)?, 1)?,
        p99_us: None,
    })
}

/// ucx_perftest -v: messages per second, over all of the test.
pub(super) fn ucx_rate(printed: &str) -> Result<f64> {
    number(&ucx_row(printed)?, 7)
}

/// The last line of eight figures: iterations, time (percentile, average, overall), bandwidth and rate (average, overall).
fn ucx_row(printed: &str) -> Result<Vec<&str>> {
    printed
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>())
        .rfind(|row| row.len() == 8 && row.iter().all(|word| word.trim().parse::<f64>().is_ok()))
        .with_context(|| format!("ucx_perftest printed no figures: {printed}"))
}

/// fi_pingpong: what it prints for every size, as bytes and microseconds of half a round trip (an average).
pub(super) fn pingpong(printed: &str) -> Result<Vec<(usize, f64)>> {
    let rows: Vec<(usize, f64)> = printed
        .lines()
        .filter_map(|line| {
            let row: Vec<&str> = line.split_whitespace().collect();
            let is_result = row.len() == 8 && row[2].starts_with('=');
            is_result.then(|| Some((bytes(row[0])?, row[6].parse().ok()?)))?
        })
        .collect();
    anyhow::ensure!(!rows.is_empty(), "fi_pingpong printed no figures: {printed}");
    Ok(rows)
}

/// `64`, `1.5k` or `1m`.
fn bytes(word: &str) -> Option<usize> {
    let (digits, factor) = match word.char_indices().last()? {
        (at, 'k') => (&word[..at], 1024.0),
        (at, 'm') => (&word[..at], 1024.0 * 1024.0),
        _ => (word, 1.0),
    };
    Some((digits.parse::<f64>().ok()? * factor) as usize)
}

fn number(row: &[&str], column: usize) -> Result<f64> {
    let word = row.get(column).context("the table is too narrow")?.trim();
    word.parse().with_context(|| format!("not a number: {word}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perftest_tells_latencies() {
        let printed = "  Send Latency Test\n Mtu             : 4096[B]\n \
            #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n \
            64      5000          4.43           325.41       6.96     \t       10.31       \t13.00  \t\t74.74   \t\t207.43 \n---\n";
        let expected = Latency {
            typical_us: 6.96,
            p99_us: Some(74.74),
        };
        assert_eq!(perftest_latency(printed).ok(), Some(expected));
        assert!(perftest_latency("Couldn't connect").is_err());
    }

    #[test]
    fn perftest_tells_rates() {
        let printed = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
            65536      5000             2726.42            2651.47\t\t   0.042423\n";
        let rate = perftest_rate(printed).expect("there is a table");
        assert!((rate - 42_423.0).abs() < 1e-6);
        assert!(perftest_rate(" #bytes\n 65536 1\n").is_err());
    }

    #[test]
    fn ucx_tells_medians_and_rates() {
        let printed = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
            20000,0.547,0.523,0.524,116.61,116.61,1910496,1910497\n";
        assert_eq!(
            ucx_latency(printed).map(|found| found.typical_us).ok(),
            Some(0.547)
        );
        assert_eq!(ucx_rate(printed).ok(), Some(1_910_497.0));
        assert!(ucx_rate("[1.2] [vm:1:0] perftest.c:1 UCX ERROR a,b,c,d,e,f,g,h\n").is_err());
    }

    #[test]
    fn pingpong_tells_half_trips_of_every_size() {
        let printed = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
            64      2k      =2k      250k        0.64s      0.40     159.02       0.01\n\
            1.5k    500     =500     1.4m        0.00s   1099.50       1.40       0.72\n\
            1m      500     =500     1000m       0.11s   9911.49     105.79       0.01\n";
        let found = pingpong(printed).expect("there are figures");
        assert_eq!(found, [(64, 159.02), (1536, 1.40), (1 << 20, 105.79)]);
        assert!(pingpong("fi_getinfo: No data available\n").is_err());
    }
}
