//! Time of validity of certificates, read from their DER encoding.
//!
//! The TLS library checks the times of the certificates of others, but does not return those of its own certificate. This
//! module reads only the fields up to the validity (RFC 5280, 4.1), and checks no signature.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// Tag of the version, which certificates of version 1 omit.
const VERSION: u8 = 0xa0;
/// Seconds of a day.
const DAY: i64 = 86_400;

/// Time of validity of a certificate, in seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Begin of the validity.
    pub begins: i64,
    /// End of the validity.
    pub ends: i64,
}

/// Returns the validity of the certificate that ends first. `None` if the text has no certificate whose validity can be
/// read.
pub fn first_validity(pem: &[u8]) -> Option<Validity> {
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    certificates
        .filter_map(|certificate| validity(&certificate))
        .min_by_key(|validity| validity.ends)
}

/// Returns the validity of a certificate in DER.
fn validity(certificate: &[u8]) -> Option<Validity> {
    let (certificate, _) = content(certificate, SEQUENCE)?;
    let (mut fields, _) = content(certificate, SEQUENCE)?;
    if let Some((_, rest)) = content(fields, VERSION) {
        fields = rest;
    }
    // Serial number, signature algorithm, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, fields) = content(fields, tag)?;
    }
    let (validity, _) = content(fields, SEQUENCE)?;
    let (begin_tag, begin, rest) = first_value(validity)?;
    let (end_tag, end, _) = first_value(rest)?;
    Some(Validity {
        begins: seconds(begin_tag, begin)?,
        ends: seconds(end_tag, end)?,
    })
}

/// Returns the content of the first value if it has this tag, and the bytes after the value.
fn content(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = first_value(der)?;
    (tag == wanted).then_some((content, rest))
}

/// Returns the tag and the content of the first value, and the bytes after it.
fn first_value(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = bytes
                .iter()
                .fold(0, |length: usize, byte| (length << 8) | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Converts a time in one of the two forms of certificates, `YYMMDDHHMMSSZ` and `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = number(digits, 2)?;
            (if year < 50 { 2_000 + year } else { 1_900 + year }, rest)
        }
        GENERALIZED_TIME => number(digits, 4)?,
        _ => return None,
    };
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, rest) = number(rest, 2)?;
    let is_valid = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60
        && rest.is_empty();
    is_valid.then(|| days(year, month, day) * DAY + hour * 3_600 + minute * 60 + second)
}

/// Returns the number in the first digits, and the bytes after them.
fn number(text: &[u8], digits: usize) -> Option<(i64, &[u8])> {
    let (number, rest) = text.split_at_checked(digits)?;
    let mut value = 0;
    for digit in number {
        value = value * 10 + i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    Some((value, rest))
}

/// Returns the days from the epoch to a date of the Gregorian calendar, by the algorithm
/// [`days_from_civil`](https://howardhinnant.github.io/date_algorithms.html). Years begin in March, so that the leap day
/// is the last day of a year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let mut der = vec![tag];
        match length {
            0..=0x7f => der.push(length as u8),
            0x80..=0xff => der.extend([0x81, length as u8]),
            _ => der.extend([0x82, (length >> 8) as u8, length as u8]),
        }
        der.extend_from_slice(content);
        der
    }

    /// Encodes a certificate with this end. Its issuer has a length of `issuer` bytes.
    fn certificate(has_version: bool, issuer: usize, tag: u8, end: &str) -> Vec<u8> {
        let version = value(VERSION, &value(INTEGER, &[2]));
        let validity = [value(UTC_TIME, b"200101000000Z"), value(tag, end.as_bytes())].concat();
        let fields = [
            if has_version { version } else { Vec::new() },
            value(INTEGER, &[1, 2, 3]),
            value(SEQUENCE, &[]),
            value(SEQUENCE, &vec![0; issuer]),
            value(SEQUENCE, &validity),
            value(SEQUENCE, b"subject"),
        ];
        value(
            SEQUENCE,
            &[value(SEQUENCE, &fields.concat()), value(SEQUENCE, &[])].concat(),
        )
    }

    #[test]
    fn both_forms_of_times_are_read() {
        for (tag, end, expected) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "240229235959Z", 1_709_251_199),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (UTC_TIME, "500101000000Z", -631_152_000),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
        ] {
            for (has_version, issuer) in [(true, 10), (false, 200), (true, 70_000 / 2)] {
                let der = certificate(has_version, issuer, tag, end);
                let expected = Validity {
                    begins: 1_577_836_800,
                    ends: expected,
                };
                assert_eq!(validity(&der), Some(expected), "{end}");
            }
        }
    }

    #[test]
    fn other_bytes_have_no_validity() {
        for (tag, end) in [
            (UTC_TIME, "20240229235959Z"),
            (UTC_TIME, "240229235959"),
            (UTC_TIME, "241329235959Z"),
            (UTC_TIME, "2402292359x9Z"),
            (GENERALIZED_TIME, "20240229235959.5Z"),
            (GENERALIZED_TIME, ""),
            (INTEGER, "240229235959Z"),
        ] {
            assert_eq!(validity(&certificate(true, 3, tag, end)), None, "{end}");
        }
        let der = certificate(true, 200, UTC_TIME, "240229235959Z");
        for at in 0..der.len() {
            // The outer length does not match any more.
            assert_eq!(validity(&der[..at]), None, "{at}");
            // A damaged byte is tolerated or refused, but never out of bounds.
            for bits in [0x01, 0x80, 0xff] {
                let mut damaged = der.clone();
                damaged[at] ^= bits;
                let _validity = validity(&damaged);
            }
        }
        assert_eq!(first_validity(b"no certificate"), None);
    }
}
