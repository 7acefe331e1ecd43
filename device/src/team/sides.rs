//! How teams do it: lanes and warps on a GPU, one thread on the host, which folds as they do.

#[cfg(target_arch = "nvptx64")]
pub(super) use gpu::{once, reduce, scan, share};
#[cfg(not(target_arch = "nvptx64"))]
pub(super) use host::{once, reduce, scan, share};

#[cfg(target_arch = "nvptx64")]
mod gpu {
    use super::super::Wide;
    use crate::arch::{self, teams::Words};
    use crate::element::Element;
    use crate::row::{WARP, moved};

    /// Number of this thread's team of `warps` warps, and how many whole ones there are.
    #[inline(always)]
    pub fn share(warps: u32) -> (usize, usize) {
        let (first, _) = arch::teams::team_of(warps);
        let teams = (arch::lane_count() / WARP / warps).max(1);
        ((first / warps) as usize, teams as usize)
    }

    /// This thread's lane and warp in its team, and the warps that there are of it.
    #[inline(always)]
    fn place<G: Wide>(group: &G) -> (u32, u32, u32) {
        let lane = group.lane();
        (lane % WARP, lane / WARP, group.lanes() / WARP)
    }

    /// The team's words of this turn.
    #[inline(always)]
    fn words<G: Wide>(turn: u32) -> Words {
        Words::of(arch::teams::team_of(G::WARPS).0, turn)
    }

    #[inline(always)]
    pub fn once<T: Element, G: Wide>(group: &G, turn: u32, f: impl FnOnce() -> T) -> T {
        let words = words::<G>(turn);
        if group.leads() {
            words.set(0, f().to_bits64());
        }
        group.sync();
        T::from_bits64(words.get(0))
    }

    #[inline(always)]
    pub fn reduce<T: Element, G: Wide>(
        group: &G,
        turn: u32,
        n: usize,
        nothing: T,
        value: &impl Fn(usize) -> T,
        fold: &impl Fn(T, T) -> T,
    ) -> T {
        let (lane, warp, warps) = place(group);
        let places = n.min((WARP * G::WARPS) as usize) as u32;
        let words = words::<G>(turn);
        // A smaller block's warps have the places of several each.
        let mut part = warp;
        while part < G::WARPS {
            let own = part * WARP + lane;
            let (mut i, mut folded) = (own as usize, nothing);
            if i < n {
                folded = value(i);
                i += (WARP * G::WARPS) as usize;
            }
            while i < n {
                folded = fold(folded, value(i));
                i += (WARP * G::WARPS) as usize;
            }
            folded = butterfly::<T, WARP>(folded, own, places, fold);
            if G::WARPS == 1 {
                group.sync();
                return folded;
            }
            if lane == 0 {
                words.set(part, folded.to_bits64());
            }
            part += warps;
        }
        group.sync();
        let own = lane % 16;
        let of_warp = if own < G::WARPS { T::from_bits64(words.get(own)) } else { nothing };
        butterfly::<T, 16>(of_warp, own, places.div_ceil(WARP), fold)
    }

    /// Folds the values of `WIDTH` neighbouring lanes, of which this one has number `own` of `all`. Those of numbers below `all` get the result.
    #[inline(always)]
    fn butterfly<T: Element, const WIDTH: u32>(value: T, own: u32, all: u32, fold: &impl Fn(T, T) -> T) -> T {
        let (mut value, mut distance) = (value, 1);
        while distance < WIDTH {
            let other = moved(value, |word| arch::exchange(word, distance));
            // The lower one stands left in both.
            let (a, b) = if own & distance == 0 { (value, other) } else { (other, value) };
            let right = (own & !(2 * distance - 1)) + distance;
            value = if right < all { fold(a, b) } else { a };
            distance *= 2;
        }
        value
    }

    #[inline(always)]
    pub fn scan<T: Element, G: Wide>(
        group: &G,
        turn: &impl Fn() -> u32,
        n: usize,
        nothing: T,
        value: &impl Fn(usize) -> T,
        fold: &impl Fn(T, T) -> T,
        each: &impl Fn(usize, T),
    ) -> T {
        let (lane, warp, warps) = place(group);
        let (mut first, mut all) = (0, None);
        while first < n {
            let i = first + (warp * WARP + lane) as usize;
            let mut up_to = if i < n { value(i) } else { nothing };
            let mut distance = 1;
            while distance < WARP {
                let below = moved(up_to, |word| arch::from_below(word, distance));
                if lane >= distance {
                    up_to = fold(below, up_to);
                }
                distance *= 2;
            }
            let below = moved(up_to, |word| arch::from_below(word, 1));
            let words = words::<G>(turn());
            if i < n && (lane == WARP - 1 || i == n - 1) {
                words.set(warp, up_to.to_bits64());
            }
            group.sync();
            let groups = (n - first).div_ceil(WARP as usize).min(warps as usize) as u32;
            let (mut k, mut before) = (0, None);
            while k < groups {
                if k == warp {
                    before = all;
                }
                let next = T::from_bits64(words.get(k));
                all = Some(all.map_or(next, |all| fold(all, next)));
                k += 1;
            }
            if i < n {
                let before = match before {
                    Some(before) if lane > 0 => fold(before, below),
                    Some(before) => before,
                    None if lane > 0 => below,
                    None => nothing,
                };
                each(i, before);
            }
            first += (warps * WARP) as usize;
        }
        group.sync();
        all.unwrap_or(nothing)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::super::Wide;
    use crate::element::Element;
    use crate::row::WARP;
    use std::vec::Vec;

    /// One team, of one thread.
    pub fn share(_warps: u32) -> (usize, usize) {
        (0, 1)
    }

    pub fn once<T: Element, G: Wide>(_group: &G, _turn: u32, f: impl FnOnce() -> T) -> T {
        f()
    }

    #[inline]
    pub fn reduce<T: Element, G: Wide>(
        _group: &G,
        _turn: u32,
        n: usize,
        nothing: T,
        value: &impl Fn(usize) -> T,
        fold: &impl Fn(T, T) -> T,
    ) -> T {
        let places = n.min((WARP * G::WARPS) as usize);
        let mut folded: Vec<T> = (0..places).map(value).collect();
        let mut first = places;
        while first < n {
            for (place, i) in (first..n.min(first + places)).enumerate() {
                folded[place] = fold(folded[place], value(i));
            }
            first += places;
        }
        let mut distance = 1;
        while distance < places {
            for left in (0..places - distance).step_by(2 * distance) {
                folded[left] = fold(folded[left], folded[left + distance]);
            }
            distance *= 2;
        }
        folded.first().copied().unwrap_or(nothing)
    }

    #[inline]
    pub fn scan<T: Element, G: Wide>(
        _group: &G,
        _turn: &impl Fn() -> u32,
        n: usize,
        nothing: T,
        value: &impl Fn(usize) -> T,
        fold: &impl Fn(T, T) -> T,
        each: &impl Fn(usize, T),
    ) -> T {
        const GROUP: usize = WARP as usize;
        let mut all = None;
        for first in (0..n).step_by(GROUP) {
            let len = GROUP.min(n - first);
            let mut up_to = [nothing; GROUP];
            for (k, up_to) in up_to[..len].iter_mut().enumerate() {
                *up_to = value(first + k);
            }
            let mut distance = 1;
            while distance < GROUP {
                for k in (distance..len).rev() {
                    up_to[k] = fold(up_to[k - distance], up_to[k]);
                }
                distance *= 2;
            }
            for k in 0..len {
                let below = (k > 0).then(|| up_to[k - 1]);
                let before = match (all, below) {
                    (Some(all), Some(below)) => fold(all, below),
                    (one, other) => one.or(other).unwrap_or(nothing),
                };
                each(first + k, before);
            }
            all = Some(all.map_or(up_to[len - 1], |all| fold(all, up_to[len - 1])));
        }
        all.unwrap_or(nothing)
    }
}
