//! decode.cu: few queries over long caches.

use super::{Choice, MEMORY_RATE, Shape, cache_bytes};

/// What launches take, in nanoseconds, 6 to 7% off, 32 rows 8 to 10% (root of the mean square over 1,800 to 7,600 launches each; H100, 2026-11-26).
struct Times {
    of_launch: u64,
    /// A tile of the warp that has most, and one of a CTA's.
    of_tile: u64,
    of_cta: u64,
    /// What a team adds, and for each CTA of one.
    of_team: u64,
    of_member: u64,
    /// A CTA's second unit beside these, and each that follows.
    of_second: u64,
    of_next: u64,
    /// A row of a unit.
    of_row: u64,
}

impl Times {
    const fn new(
        of_launch: u64,
        (of_tile, of_cta): (u64, u64),
        (of_team, of_member): (u64, u64),
        (of_second, of_next): (u64, u64),
        of_row: u64,
    ) -> Times {
        Times { of_launch, of_tile, of_cta, of_team, of_member, of_second, of_next, of_row }
    }

    /// Of units of so many rows.
    fn of(head_dim: u32, rows: u32) -> Times {
        match (head_dim, rows) {
            (64, 8) => Times::new(2079, (643, 64), (950, 25), (1005, 1036), 49),
            (64, 16) => Times::new(2097, (580, 97), (1688, 36), (1295, 1230), 68),
            (64, _) => Times::new(2923, (937, 178), (1866, 55), (3112, 2739), 76),
            (128, 8) => Times::new(2184, (606, 44), (749, 32), (1547, 1293), 151),
            (128, 16) => Times::new(2519, (570, 89), (1611, 77), (1884, 1977), 109),
            (128, _) => Times::new(2314, (652, 154), (3481, 68), (1886, 847), 207),
            (_, 8) => Times::new(2335, (331, 76), (1225, 50), (2178, 1195), 210),
            _ => Times::new(2137, (708, 73), (2332, 146), (1279, 1030), 248),
        }
    }
}

const WARPS: u32 = 8;

/// Keys of a tile.
fn tile(head_dim: u32) -> u32 {
    match head_dim {
        64 => 64,
        128 => 32,
        _ => 16,
    }
}

/// Rows of a unit that may pay: 8 where there are no more, 16 at a time, or 32, which want more room and have a longer end.
fn sizes(s: &Shape) -> impl Iterator<Item = u32> {
    let (rows, most) = (s.rows(), if s.head_dim < 256 { 32 } else { 16 });
    [8, 16, 32].into_iter().filter(move |n| *n <= most && if *n == 8 { rows <= 8 } else { rows > n / 2 })
}

/// All of them.
pub(super) fn candidates(s: &Shape, sms: u32) -> Vec<Choice> {
    let of_rows = |rows| choose_of(s, rows, sms, None, &[]);
    let mut found: Vec<Choice> = if s.rows() > 256 { Vec::new() } else { sizes(s).map(of_rows).collect() };
    found.extend(spread_of(s, sms, None, false));
    found
}

/// Tiles that the end of a unit takes as long as, whole rounds of a CTA's warps, by head dimension and rows of a unit (of 0 to 64, H200, 2026-11-28). Units of no more are not cut.
fn ends_of(head_dim: u32, rows: u32) -> Option<u32> {
    match (head_dim, rows) {
        (128, 8) => Some(16),
        (64 | 128, _) => Some(24),
        (_, 8) => Some(32),
        _ => None,
    }
}

/// `WS_SPREAD`: CTAs have equal stretches of all sequences' tiles, each of one head. None where it does not fit. `page`: keys of a page; `lengths`: only the device knows
/// them, and may give each CTA part of one unit alone.
pub(super) fn spread_of(s: &Shape, sms: u32, page: Option<u32>, lengths: bool) -> Option<Choice> {
    let rows = if s.rows() <= 8 { 8 } else { 16 };
    let (d, keys, ends) = (s.head_dim, tile(s.head_dim), ends_of(s.head_dim, rows)?);
    let per_unit = s.seqlen_k.div_ceil(keys);
    let all = u64::from(s.batch) * u64::from(per_unit + ends);
    if s.rows() > 16 || s.heads_kv > sms || page.is_some_and(|page| page % keys != 0) || all >= 1 << 28 {
        return None;
    }
    let ctas = s.heads_kv * (sms / s.heads_kv).min((s.batch * per_unit).div_ceil(WARPS));
    let defines = vec![
        ("WS_D", d),
        ("WS_KEYS", keys),
        ("WS_WARPS", WARPS),
        ("WS_STAGES", 2),
        ("WS_ROWS", rows),
        ("WS_CAUSAL", s.causal()),
        ("WS_SPREAD", 1),
    ];
    let barriers = if d == 256 || rows == 16 { 16 } else { 8 }; // of a stage's tile: WS_APART
    let shared = WARPS * (4 * keys * d + 8 * rows + rows * (d + 4) * 4 + 2 * barriers) + 24;
    let warps = WARPS + u32::from(lengths && rows == 8 && d <= 128); // kWaits: a warp more
    let mut choice = Choice::new("decode", defines, [ctas, 1, 1], warps * 32, shared);
    choice.tiles_per_unit = per_unit;
    choice.tiles_per_worker = 1;
    choice.total_tiles = s.batch * s.heads_kv;
    choice.section = ends;
    choice.boxes = Some((8, keys));
    choice.units = ctas * (rows / 8) * WARPS;
    choice.partial_floats = u64::from(2 * ctas) * u64::from(rows * (d + if d == 256 { 4 } else { 2 }));
    Some(choice)
}

/// The same where teams, as [`choose`] has them, leave so many SMs without work that it is faster: of 911 random shapes, most times of those chosen so within 0.9% of the faster ones in the
/// geometric mean, by teams alone 2.6% (H200, 2026-11-28).
pub(super) fn spread(s: &Shape, sms: u32) -> Option<Choice> {
    let choice = spread_of(s, sms, None, false)?;
    let (_, teams) = choose(s, sms);
    let (units, team) = (teams.total_tiles, teams.tiles_per_worker);
    let rounds = units.div_ceil(units.min(sms / team).max(1));
    let busiest = u64::from(rounds) * u64::from(choice.tiles_per_unit.div_ceil(team));
    let even = u64::from(units) * u64::from(choice.tiles_per_unit) * 100 / (u64::from(sms) * busiest);
    let most = match cache_bytes(s) >> 20 {
        0..=11 => 0,
        12..=19 => 60,
        20..=39 => 70,
        40..=79 => 80,
        80..=127 => 90,
        _ => 95,
    };
    (even < most).then_some(choice)
}

/// The fastest for at most 256 packed rows, with its time.
pub(super) fn choose(s: &Shape, sms: u32) -> (u64, Choice) {
    let (ns, choice) = choose_used(s, sms, None, &[]);
    (u64::try_from(ns).unwrap_or(u64::MAX), choice)
}

/// The same over caches, perhaps in pages of so many keys, of which only the device knows what is used: with the product of times of what may be, each with lengths of its own; of all, if there are none.
pub(super) fn choose_used(s: &Shape, sms: u32, page: Option<u32>, used: &[Shape]) -> (u128, Choice) {
    let all = [*s];
    let timed = |rows| {
        let choice = choose_of(s, rows, sms, page, used);
        let ns = |x: &Shape| {
            let tiles = x.seqlen_k.div_ceil(tile(s.head_dim)); // whole ones, by which times are told
            u128::from(team_ns(x, rows, choice.total_tiles, tiles, choice.tiles_per_worker, sms))
        };
        (if used.is_empty() { &all } else { used }.iter().map(ns).product(), choice)
    };
    let mut found: Vec<_> = sizes(s).map(timed).collect();
    found.sort_by_key(|(ns, _)| *ns);
    found.swap_remove(0)
}

/// About how long it takes with teams of so many CTAs.
fn team_ns(s: &Shape, rows: u32, units: u32, per_unit: u32, team: u32, sms: u32) -> u64 {
    let t = Times::of(s.head_dim, rows);
    let rounds = u64::from(units.div_ceil(units.min(sms / team).max(1)));
    let adding = if team > 1 { t.of_team + t.of_member * u64::from(team) } else { 0 };
    let tiles = per_unit.div_ceil(team);
    let of_rows = u64::from(rows.min(s.rows())) * t.of_row;
    let unit = u64::from(tiles.div_ceil(WARPS)) * t.of_tile + u64::from(tiles) * t.of_cta + of_rows + adding;
    let following = if rounds > 1 { t.of_second + t.of_next * (rounds - 2) } else { 0 };
    let (work, reading) = (rounds * unit, cache_bytes(s) / MEMORY_RATE);
    t.of_launch + following + work.max(reading) + work.min(reading) / 3 // they hide most of each other
}

/// How many CTAs work on a unit together: what takes least time, or the least product of times of what may be used, and of equals as many as leave few idle. Each warp has a tile, about.
fn team_of(s: &Shape, rows: u32, units: u32, per_unit: u32, sms: u32, used: &[Shape]) -> u32 {
    let most = per_unit.div_ceil(WARPS).min(sms);
    // One round of as many as there is room for, a half, a third or a quarter of that, or fewer in more rounds.
    let of_one_round = (1..=4).map(|n| most.min(sms / units / n).max(1));
    let order = |team: u32| (std::cmp::Reverse(team * units.min(sms / team)), team);
    // Many units are even enough without: their counters fit a stream's slot in Python, and parts stay few.
    let fits = |team: &u32| *team == 1 || u64::from(units) * u64::from(*team * (rows / 8)) <= 15 * u64::from(sms);
    let with_tiles = |team: u32| per_unit.div_ceil(per_unit.div_ceil(team)); // no more of them than have tiles
    let teams: Vec<u32> = (1..=most.min(16)).chain(of_one_round).map(with_tiles).filter(fits).collect();
    let of_all = |team: &u32| (team_ns(s, rows, units, per_unit, *team, sms), order(*team));
    let of_all = teams.iter().copied().min_by_key(of_all).unwrap_or(1);
    if used.is_empty() {
        return of_all;
    }
    // At least half as many as all of the caches want: fewer are worst where one sequence is long.
    let ns = |x: &Shape, team| u128::from(team_ns(x, rows, units, x.seqlen_k.div_ceil(tile(x.head_dim)), team, sms));
    let product = |team: &u32| (used.iter().map(|x| ns(x, *team)).product::<u128>(), order(*team));
    teams.into_iter().filter(|team| 2 * team >= of_all).min_by_key(product).unwrap_or(of_all)
}

/// At most `rows` packed rows to a unit, 8, 16 or, up to D 128, 32; perhaps in pages of so many keys; `used`: what may be used of caches.
fn choose_of(s: &Shape, rows: u32, sms: u32, page: Option<u32>, used: &[Shape]) -> Choice {
    let d = s.head_dim;
    let (mut keys, warps) = (tile(d), WARPS);
    let row_tiles = s.rows().div_ceil(rows);
    let (mut per_unit, units) = (s.seqlen_k.div_ceil(keys), s.batch * s.heads_kv * row_tiles);
    let team = team_of(s, rows, units, per_unit, sms, used).min(sms);
    let ctas = team * units.min(sms / team);
    let waits = d <= 128 && rows == 8; // kWaits: a warp more
    if waits && (2 * per_unit.div_ceil(team) <= warps || page.is_some_and(|page| page % keys != 0)) {
        // A half tile for each warp: 2 to 8% faster, of twice as many 1 to 6% slower (H200, 2026-11-28).
        keys /= 2;
        per_unit = s.seqlen_k.div_ceil(keys);
    }
    // One unit to a CTA: at D 256 the exchange lies in the ring, whose third stage is room for that of 16 rows.
    let ring = d == 256 && units <= sms / team;
    let stages = if ring && rows == 16 { 3 } else { 2 };
    let mut defines = vec![
        ("WS_D", d),
        ("WS_KEYS", keys),
        ("WS_WARPS", warps),
        ("WS_STAGES", stages),
        ("WS_ROWS", rows),
        ("WS_CAUSAL", s.causal()),
    ];
    if ring {
        defines.push(("WS_RING", 1));
    }
    if row_tiles > 1 {
        defines.push(("WS_MORE", 1));
    }
    let exchange = if ring { 0 } else { warps * 8 * (d + 4) * 4 };
    let barriers = if d == 256 || rows >= 16 { 16 } else { 8 }; // of a stage's tile: WS_APART
    let tiles = warps * stages * 2 * keys * d + warps * 64 + exchange;
    // 32 rows: a copy of the queries for each warp.
    let queries = if rows == 32 { tiles.next_multiple_of(128) + warps * 32 * d * 2 } else { tiles };
    let shared = queries + warps * stages * barriers + 24;
    let mut choice = Choice::new("decode", defines, [ctas, 1, 1], (warps + u32::from(waits)) * 32, shared);
    choice.tiles_per_unit = per_unit;
    choice.tiles_per_worker = team;
    choice.total_tiles = units;
    choice.row_tiles = if row_tiles > 1 { row_tiles } else { 0 };
    choice.boxes = Some((8, keys));
    if team > 1 {
        choice.units = units * (rows / 8) * warps;
        choice.partial_floats = u64::from(units * team) * u64::from(rows * (d + if d == 256 { 4 } else { 2 }));
    }
    choice
}
