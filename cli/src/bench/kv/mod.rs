//! `nigh bench kv`: measures key-value servers of three protocols with one generator.
//!
//! Reading order: [`options`], [`workload`] (what is asked for), [`protocol`] (how it is said), [`connection`] and [`generator`]
//! (one thread's sockets and its loop), [`stretch`] (threads, clocks), [`report`].
mod connection;
#[cfg(test)]
mod end_to_end;
#[cfg(test)]
mod fake;
mod generator;
pub mod measure;
mod options;
mod poll;
mod protocol;
mod report;
mod stretch;
mod workload;

pub use options::Options;
pub use report::Report;

use super::vector::progress_bar;
use options::{Checked, ProtocolName};
use protocol::Protocol;
use protocol::memcached::Memcached;
use protocol::nigh::Nigh;
use protocol::redis::Redis;
use report::{Preload, Stretch};
use stretch::Setup;
use workload::Values;

/// Runs the benchmark. A report may still hold a failure: see [`Report::verdict`].
///
/// # Errors
/// A sentence: flags that do not go together, a connection that failed, bytes that are no answer, a refused fill.
pub fn run(options: &Options) -> Result<Report, String> {
    let checked = options.check()?;
    match options.protocol {
        ProtocolName::Nigh => {
            let token = options.api_key.as_deref().unwrap_or_default().as_bytes();
            if token.len() > usize::from(u8::MAX) {
                return Err(
                    "the API key is longer than the 255 bytes that the binary protocol carries".into()
                );
            }
            measure(&Nigh::new(token, options.ttl_ms), options, checked)
        }
        ProtocolName::Memcached => measure(&Memcached::new(options.ttl_ms), options, checked),
        ProtocolName::Redis => measure(&Redis::new(options.ttl_ms), options, checked),
    }
}

fn measure(protocol: &impl Protocol, options: &Options, checked: Checked) -> Result<Report, String> {
    if let Some(pid) = options.pid
        && nigh_shard::system::cpu_of(pid).is_none()
    {
        return Err(format!("--pid {pid}: there is no such process"));
    }
    let tls = options.tls.connector(&[])?;
    let setup = Setup {
        protocol,
        address: &checked.address,
        tls: tls.as_ref(),
        options,
        distribution: checked.distribution,
        values: Values::new(options.value_size),
    };
    let mut report = Report::new(options, &checked.address, checked.rates.is_some());
    if options.preload {
        let bar = progress_bar("filling", options.keys);
        let time = setup.fill(&|keys| bar.set_position(keys))?;
        bar.finish_and_clear();
        report.preload = Some(Preload::of(options.keys, time));
    }
    if checked.measured.is_zero() {
        return Ok(report);
    }
    let rates = checked.rates.map_or(vec![None], |rates| rates.into_iter().map(Some).collect());
    for rate in rates {
        let bar = progress_bar("measuring", checked.measured.as_millis() as u64);
        let arrival = rate.map(|rate| (rate, options.arrivals));
        let (tally, spent) =
            setup.measure(arrival, (checked.warmup, checked.measured), &|millis| bar.set_position(millis))?;
        bar.finish_and_clear();
        let stretch = Stretch::of(&tally, &spent, rate, options.threads);
        let is_over = stretch.errors > 0
            || (options.sweep.is_some() && stretch.all.latency.p99_us > options.sweep_p99_us);
        report.stretches.push(stretch);
        if is_over {
            break;
        }
    }
    Ok(report)
}
