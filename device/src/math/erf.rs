//! The error function. Both polynomials interpolate at the Chebyshev nodes of their interval.

use super::wide::horner;

/// erf(x) / x - 1 by powers of x^2, for |x| up to 1; off by at most 2^-62 of erf(x) / x.
const SMALL: [f64; 13] = [
    0.128_379_167_095_512_6,
    -0.376_126_389_031_837_5,
    0.112_837_916_709_548_79,
    -0.026_866_170_645_076_792,
    0.005_223_977_624_818_014_5,
    -0.000_854_832_698_083_379,
    0.000_120_553_311_116_427_1,
    -1.492_559_526_683_118_2e-05,
    1.646_100_048_412_136_8e-06,
    -1.635_031_270_105_469_5e-07,
    1.465_977_527_404_743_6e-08,
    -1.137_284_885_679_167_4e-09,
    5.957_176_147_748_911e-11,
];

/// (1 - erf(x)) * e^(x^2) by powers of 14.4 / (x + 3) - 2.6, for x from 1 to 6; off by at most 2^-60 of itself.
const LARGE: [f64; 17] = [
    0.207_983_291_333_428_85,
    0.154_361_174_294_369_19,
    0.049_698_445_403_394_8,
    0.012_713_147_695_691_995,
    0.002_479_314_697_072_418_7,
    0.000_331_602_960_578_454_36,
    1.956_358_330_834_969e-05,
    -2.425_557_481_102_028_4e-06,
    -5.541_277_438_329_464e-07,
    4.526_722_197_970_927e-09,
    1.134_026_105_584_032_3e-08,
    2.637_881_701_943_207_4e-10,
    -2.580_970_329_370_467_5e-10,
    -6.030_100_178_315_267e-12,
    6.716_060_821_011_204e-12,
    -4.468_786_282_795_809e-15,
    -1.679_977_715_931_145_7e-13,
];

/// The error function, by an exponential of numbers from -36 to -1.
#[inline(always)]
pub(super) fn error_function(x: f64, exp: impl FnOnce(f64) -> f64) -> f64 {
    let a = x.abs();
    if a < 1.0 {
        x + x * horner(x * x, &SMALL)
    } else if a < 6.0 {
        // The square's rounding error does not show: what it is multiplied with shrinks faster than it grows.
        (1.0 - exp(-(a * a)) * horner(14.4 / (a + 3.0) - 2.6, &LARGE)).copysign(x)
    } else {
        // NaN for NaN.
        (1.0 - 0.0 / a).copysign(x)
    }
}
