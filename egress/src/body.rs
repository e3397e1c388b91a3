//! An answer's body as it was meant: decoded where it came compressed, up to a bound.

use std::io::{self, Read as _};

use flate2::read::{MultiGzDecoder, ZlibDecoder};

/// Why a compressed body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undecoded {
    /// It would be larger than the bound.
    TooLarge,
    /// It is not what its header says, or in an encoding that nobody asked for.
    Unreadable,
}

/// Undoes the encodings that a Content-Encoding header lists, the last one first.
pub(crate) fn decoded(
    body: Vec<u8>,
    encodings: &str,
    bytes_max: usize,
) -> Result<Vec<u8>, (Vec<u8>, Undecoded)> {
    let mut plain: Option<Vec<u8>> = None;
    for encoding in encodings.rsplit(',').map(str::trim) {
        let from = plain.as_deref().unwrap_or(&body[..]);
        let read = match encoding.to_ascii_lowercase().as_str() {
            "" | "identity" => continue,
            "gzip" | "x-gzip" => bounded(MultiGzDecoder::new(from), bytes_max),
            "deflate" => bounded(ZlibDecoder::new(from), bytes_max),
            _ => Err(Undecoded::Unreadable),
        };
        match read {
            Ok(read) => plain = Some(read),
            Err(why) => return Err((body, why)),
        }
    }
    Ok(plain.unwrap_or(body))
}

fn bounded(from: impl io::Read, bytes_max: usize) -> Result<Vec<u8>, Undecoded> {
    let mut read = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    from.take(limit).read_to_end(&mut read).map_err(|_| Undecoded::Unreadable)?;
    if read.len() > bytes_max { Err(Undecoded::TooLarge) } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).expect("written");
        encoder.finish().expect("finished")
    }

    #[test]
    fn a_body_is_read_as_its_header_says() {
        let twice = gzip(&gzip(b"text"));
        for (body, encodings) in [
            (b"text".to_vec(), ""),
            (b"text".to_vec(), "identity"),
            (gzip(b"text"), "GZIP"),
            (twice, "x-gzip, gzip"),
        ] {
            assert_eq!(decoded(body, encodings, 100), Ok(b"text".to_vec()), "{encodings}");
        }
    }

    #[test]
    fn what_cannot_be_read_stays_as_it_came() {
        let bomb = gzip(&vec![0; 1_000_000]);
        assert_eq!(decoded(bomb.clone(), "gzip", 999_999), Err((bomb, Undecoded::TooLarge)));
        for encodings in ["gzip", "deflate", "br"] {
            let kept = (b"text".to_vec(), Undecoded::Unreadable);
            assert_eq!(decoded(b"text".to_vec(), encodings, 100), Err(kept), "{encodings}");
        }
    }
}
