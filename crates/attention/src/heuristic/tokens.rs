//! Sequences that lie one behind another, of which the host knows the longest and the sum.

use super::few::{self, Consumers, Kernel};
use super::lengths::{self, MOST_SHARES, Places, with_lengths};
use super::{Choice, Shape, decode};
use crate::problem::Mask;

/// CTAs of a row tile, at most, by which numbers of them are counted.
const MOST_WAYS: u64 = 33;
/// Hundredths of the least time at which the device is asked, which takes it 0.6 us.
const REGRET: u64 = 110;
/// Queries of a sequence in the mean from which on heads are looked at apart: else too many may have one, and row tiles of one row.
const APART_FROM: u64 = 64;

/// Of so many queries and keys together: sequences of one kind.
#[derive(Clone, Copy)]
struct Alike {
    count: u64,
    queries: u64,
    keys: u64,
}

/// The kernel for sequences of so many tokens together, of queries and of keys, and at most `seqlen_q` and `seqlen_k` each. At most 16 packed rows (D 256: eight) are decode.cu's, more few.cuh's:
/// how many CTAs share a row tile's keys the host chooses, for sequences that are taken for alike but for one, or the device, where that would be wrong if most had one token.
pub fn choose_varlen(s: &Shape, tokens: (u64, u64), sms: u32) -> Choice {
    let [batch, heads_kv] = [s.batch, s.heads_kv].map(u64::from);
    // Numbers of row tiles, if all were the longest.
    let numbers = u128::from(batch * heads_kv) * u128::from(s.rows().div_ceil(64)) * u128::from(MOST_WAYS);
    if !few::fits(s) || numbers >= 1 << 31 {
        return lengths::choose_ragged(s, sms);
    }
    // Tiles, if all sequences were all keys: wrong ones, which may overlap, must be counted, too.
    let counted = |c: &Choice| {
        let tile = c.boxes.map_or(1, |(_, keys)| keys);
        batch * (tokens.1.div_ceil(u64::from(tile)) + u64::from(c.section)) < 1 << 30
    };
    let decode = decode::spread_of(s, sms, None, true).filter(counted);
    // 27 calls of fewer keys take 1.07 to 1.22 times as long by it, 1,232 others 0.72 in the mean (H200, 2026-11-29).
    if let Some(decode) = decode.filter(|_| s.head_dim > 64 || s.rows() <= 8 || s.seqlen_k > 512) {
        return with_lengths(s, decode, Places::Tokens);
    }
    let Some((ns, mut choice)) = of_rows(s, tokens, sms) else {
        return lengths::choose_ragged(s, sms);
    };
    let many = tokens.0.min(batch * u64::from(s.seqlen_q)) >= APART_FROM * batch;
    // Of 1,138 calls 1.009 (as many queries as keys), 1.017 (chunks) and 1.027 (a prompt beside tokens) times as long as the fastest so (H200, 2026-11-29).
    if let Some(apart) = few::heads_apart(s).filter(|_| many)
        && let Some((least, over)) = of_rows(&apart, tokens, sms)
        && 5 * least < 6 * ns
    {
        choice = Choice { splits: s.group, ..over };
    }
    with_lengths(s, choice, Places::Tokens)
}

/// few.cuh's choice, with its time if sequences but the longest are alike.
fn of_rows(s: &Shape, tokens: (u64, u64), sms: u32) -> Option<(u64, Choice)> {
    let [batch, queries, keys] = [s.batch, s.seqlen_q, s.seqlen_k].map(u64::from);
    let made = (tokens.1 / 128 + batch) * 128 * u64::from(s.kv_heads()) * u64::from(s.head_dim);
    let tokens = (tokens.0.min(batch * queries), tokens.1.min(batch * keys)); // what they can be at most
    let kernels = few::kernels(s, true);
    let (mut ns, few) = if batch > 1 {
        let ways = |consumers: &Consumers| consumers.some_ways(s, 1 << 31).collect();
        few::fastest(s, &kernels, sms, ways, |kernel, consumers, ways| {
            consumers.uneven_ns(s, ways, tokens, sms, kernel.step(s))
        })
    } else {
        let ways = |consumers: &Consumers| (1..=consumers.most_ways(s, sms)).collect();
        few::fastest(s, &kernels, sms, ways, |kernel, consumers, ways| consumers.ns(s, ways, sms, kernel.step(s), true))
    };
    let (kernel, consumers) = kernel_of(s, &kernels, &few)?;
    let mut over = None;
    if lengths::may_make(s, made) {
        if batch == 1 {
            // By the same estimate: 211 calls of one sequence take 1.010 times as long as the fastest so, else 1.024.
            ns = consumers.uneven_ns(s, few.tiles_per_worker, tokens, sms, kernel.step(s));
        }
        if s.shared > 1 {
            ns = ns * 11 / 10; // heads apart take as much longer by this estimate
        }
        for consumers in few::MADE.of(s) {
            // Behind the mask two of D 128 are hardly ever the fastest.
            if consumers.groups == 3 || s.head_dim == 256 || s.mask == Mask::Full {
                let found = lengths::made_ns(s, consumers, tokens, sms);
                if found < ns {
                    (ns, over) = (found, Some(lengths::choose_made(s, consumers.groups, made)));
                }
            }
        }
    }
    let mut choice = over.unwrap_or_else(|| decided(s, few, (kernel, consumers), &kernels, tokens, sms));
    let ctas = most_row_tiles(s, &choice, tokens.0) * u64::from(choice.tiles_per_worker);
    choice.grid = [ctas.min(u64::from(sms)) as u32, 1, 1];
    Some((ns, choice))
}

/// Of all key heads: whole ones, and for each sequence one that is not.
fn most_row_tiles(s: &Shape, choice: &Choice, tokens_q: u64) -> u64 {
    let rows = u64::from(64 * choice.instance.define("WS_WGS"));
    let (group, batch) = (u64::from(s.group), u64::from(s.batch));
    let longest = batch * u64::from(s.rows()).div_ceil(rows);
    u64::from(s.heads_kv) * longest.min((group * tokens_q).div_ceil(rows) + batch)
}

/// few.cuh's kernel that the choice is, with its times.
fn kernel_of(s: &Shape, kernels: &[Kernel], choice: &Choice) -> Option<(Kernel, &'static Consumers)> {
    let kernel = kernels.iter().find(|kernel| kernel.file == choice.instance.file)?;
    let groups = choice.instance.define("WS_WGS");
    Some((*kernel, kernel.of(s).iter().find(|consumers| consumers.groups == groups)?))
}

/// The choice as it is (row_tiles is 0), or, where its number of CTAs would be far off if most sequences had one token, the kernel that is the fastest then, for the device to decide, up to a
/// number (few_decide of few.cuh). Scratch is for as many shares as that takes at most, whatever lengths it finds.
fn decided(
    s: &Shape,
    mut choice: Choice,
    of: (Kernel, &'static Consumers),
    kernels: &[Kernel],
    tokens: (u64, u64),
    sms: u32,
) -> Choice {
    let [batch, heads_kv, group, queries, keys] = [s.batch, s.heads_kv, s.group, s.seqlen_q, s.seqlen_k].map(u64::from);
    let ways = choice.tiles_per_worker;
    choice.row_tiles = 0;
    if batch == 1 || tokens.0 >= batch * queries && tokens.1 >= batch * keys {
        return choice;
    }
    let guesses = of_one_token(s, tokens);
    let least = |kernel: &Kernel, consumers: &Consumers, groups: &[Alike]| {
        let rows = u64::from(64 * consumers.groups);
        let row_tiles = groups.iter().map(|x| x.count * (group * x.queries).div_ceil(rows)).sum::<u64>();
        let most = u64::from(MOST_SHARES * sms) / (heads_kv * row_tiles);
        let most = most.min(32).min(keys.div_ceil(256)).max(1);
        let ways = few::SOME_WAYS.into_iter().filter(|ways| u64::from(*ways) <= most);
        ways.map(|ways| cycles(s, kernel, consumers, ways, groups, sms)).min().unwrap_or(u64::MAX)
    };
    let near =
        |groups: &Vec<Alike>| 100 * cycles(s, &of.0, of.1, ways, groups, sms) < REGRET * least(&of.0, of.1, groups);
    if guesses.iter().all(near) {
        return choice;
    }
    let mut best: Option<((u128, usize, u32), Kernel, &'static Consumers)> = None;
    for (i, kernel) in kernels.iter().enumerate() {
        for consumers in kernel.of(s) {
            let times = guesses.iter().map(|groups| u128::from(least(kernel, consumers, groups)));
            let found = (times.product(), i, consumers.groups);
            if best.as_ref().is_none_or(|(least, ..)| found < *least) {
                best = Some((found, *kernel, consumers));
            }
        }
    }
    let Some((_, kernel, consumers)) = best else { return choice };
    let mut choice = few::choice(s, kernel.file, consumers, 1, sms);
    choice.row_tiles = 0;
    let most = s.seqlen_k.div_ceil(256).min(32);
    let shares = (most_row_tiles(s, &choice, tokens.0) * u64::from(most)).min(u64::from(MOST_SHARES * sms));
    let (rows, threads) = (u64::from(64 * consumers.groups), 128 * u64::from(consumers.groups));
    if shares < 2 * heads_kv * (group * tokens.0).div_ceil(rows) {
        return choice; // there are no fewer row tiles than those
    }
    let mut choice = lengths::told_times(s, choice, consumers, (group * tokens.0 / batch).max(1));
    choice.tiles_per_worker = most;
    choice.row_tiles = shares as u32; // at most MOST_SHARES for each SM
    choice.partial_floats = shares * threads * u64::from(s.head_dim / 4 + 4);
    choice.units = choice.row_tiles * 4 * consumers.groups;
    choice
}

/// What sequences may be if all but a few have one query: kinds of them, with most keys one of those few or one of the others, all else alike.
fn of_one_token(s: &Shape, tokens: (u64, u64)) -> Vec<Vec<Alike>> {
    let [batch, queries, longest] = [s.batch, s.seqlen_q, s.seqlen_k].map(u64::from);
    let prompts = (tokens.0 as f64 - batch as f64) / (queries.max(2) - 1) as f64;
    let prompts = (prompts.round_ties_even().max(1.0) as u64).min(batch);
    let keys = (tokens.1.saturating_sub(longest) / (batch - 1)).max(1);
    let kind = |count: u64, queries, keys| Alike { count, queries, keys };
    let mut kinds =
        vec![vec![kind(1, queries, longest), kind(prompts - 1, queries, keys), kind(batch - prompts, 1, keys)]];
    if prompts < batch {
        kinds.push(vec![kind(1, 1, longest), kind(prompts, queries, keys), kind(batch - prompts - 1, 1, keys)]);
    }
    for groups in &mut kinds {
        groups.retain(|x| x.count > 0);
    }
    kinds
}

/// About how many cycles few.cuh takes for sequences of such kinds, as few_decide estimates them.
fn cycles(s: &Shape, kernel: &Kernel, consumers: &Consumers, ways: u32, groups: &[Alike], sms: u32) -> u64 {
    let (step, rows) = (u64::from(kernel.step(s)), u64::from(64 * consumers.groups));
    let (ways_of, sms) = (u64::from(ways), u64::from(sms));
    let tokens = groups.iter().map(|x| x.count * x.queries).sum::<u64>();
    let tiles = |keys: u64| keys.div_ceil(128 * step).max(1);
    let row_tiles = |x: &Alike| x.count * (u64::from(s.group) * x.queries).div_ceil(rows);
    let all = groups.iter().map(row_tiles).sum::<u64>();
    let shares = all * u64::from(s.heads_kv) * ways_of;
    let of_each = (u64::from(s.group) * tokens / u64::from(s.batch)).max(1);
    let (of_keys, of_rows) = consumers.cycles(s, ways, of_each, shares > sms, 8);
    let of_keys = of_keys / 100 * step;
    let longest = groups.iter().map(|x| tiles(x.keys)).max().unwrap_or(1).div_ceil(ways_of) * of_keys + of_rows;
    let unseen = |x: &Alike| if s.mask == Mask::Causal { x.queries / 2 } else { 0 };
    let steps = groups.iter().map(|x| row_tiles(x) * tiles(x.keys.saturating_sub(unseen(x)))).sum::<u64>();
    let work = u64::from(s.heads_kv) * (steps * of_keys + all * ways_of * of_rows) / sms;
    if shares > sms { longest.max(work + longest * 9 / 20) } else { longest }
}
