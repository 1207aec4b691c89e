//! Archive format that packs a folder into one file. The repository contains data folders of older builds in this
//! format, and tests use it to copy a prepared store to many servers.
//!
//! The file is compressed with zstd. It holds one entry after another. Numbers are little-endian and have 4 or 8 bytes:
//!
//! ```text
//! length of the path      4    at most 4,096
//! path                         below the folder, with slashes; a folder ends with one
//! length of the file      8
//! bytes that follow       8    the file without its trailing zeros: preallocated files are mostly zeros
//! bytes
//! ```
//!
//! The entries of each folder are sorted by name, so equal folders give equal files.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Maximum length of the path of an entry, in bytes.
const PATH_BYTES_MAX: usize = 4_096;
/// zstd level. A high level is acceptable, because the data is small and is unpacked more often than packed.
const LEVEL: i32 = 12;

/// Packs a folder into bytes, without the relative paths for which `is_skipped` returns true.
///
/// # Errors
///
/// Returns an error if a file or folder cannot be read, or a file name is not UTF-8.
pub fn pack(folder: &Path, is_skipped: impl Fn(&str) -> bool) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    add(folder, "", &is_skipped, &mut plain)?;
    zstd::encode_all(&plain[..], LEVEL)
}

/// Unpacks an archive into a folder, which is created if it does not exist.
///
/// # Errors
///
/// Returns an error if the archive is damaged or a file cannot be written.
pub fn unpack(packed: &[u8], folder: &Path) -> io::Result<()> {
    let plain = zstd::decode_all(packed)?;
    let mut rest = &plain[..];
    fs::create_dir_all(folder)?;
    while !rest.is_empty() {
        let path_len = u32::from_le_bytes(*take_array(&mut rest)?) as usize;
        let path = take(&mut rest, path_len.min(PATH_BYTES_MAX + 1))?;
        let path = std::str::from_utf8(path).map_err(|_| damaged())?;
        let file_len = u64::from_le_bytes(*take_array(&mut rest)?);
        let kept_len = u64::from_le_bytes(*take_array(&mut rest)?);
        let kept = take(&mut rest, usize::try_from(kept_len).map_err(|_| damaged())?)?;
        if path.split('/').any(|part| part == "..") || path.starts_with('/') {
            return Err(damaged());
        }
        let place = folder.join(path);
        if path.ends_with('/') {
            fs::create_dir_all(place)?;
        } else {
            let mut file = File::create(place)?;
            file.write_all(kept)?;
            file.set_len(file_len)?;
        }
    }
    Ok(())
}

fn add(
    folder: &Path,
    prefix: &str,
    is_skipped: &impl Fn(&str) -> bool,
    plain: &mut Vec<u8>,
) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().into_string().map_err(|_| damaged())?;
        let path = format!("{prefix}{name}");
        if is_skipped(&path) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            let path = format!("{path}/");
            put(&path, &[], plain);
            add(&entry.path(), &path, is_skipped, plain)?;
        } else {
            put(&path, &fs::read(entry.path())?, plain);
        }
    }
    Ok(())
}

fn put(path: &str, bytes: &[u8], plain: &mut Vec<u8>) {
    let kept = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let path_len = u32::try_from(path.len()).expect("paths are short");
    plain.extend_from_slice(&path_len.to_le_bytes());
    plain.extend_from_slice(path.as_bytes());
    plain.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    plain.extend_from_slice(&(kept as u64).to_le_bytes());
    plain.extend_from_slice(&bytes[..kept]);
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> io::Result<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(len).ok_or_else(damaged)?;
    *rest = after;
    Ok(taken)
}

fn take_array<'a, const N: usize>(rest: &mut &'a [u8]) -> io::Result<&'a [u8; N]> {
    take(rest, N)?.try_into().map_err(|_| damaged())
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not an archive of this harness")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_comes_back_as_it_was() {
        let place = tempfile::tempdir().expect("the temporary folder can be written");
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("empty")).expect("a folder");
        fs::create_dir_all(from.join("a/b")).expect("a folder");
        let mut preallocated = vec![0; 1 << 20];
        preallocated[..3].copy_from_slice(b"abc");
        fs::write(from.join("a/b/preallocated"), &preallocated).expect("a file");
        fs::write(from.join("a/nothing"), b"").expect("a file");
        fs::write(from.join("LOCK"), b"1").expect("a file");
        let packed = pack(&from, |path| path == "LOCK").expect("packs");
        assert!(packed.len() < 500, "zeros are not kept: {}", packed.len());
        unpack(&packed, &to).expect("unpacks");
        assert_eq!(
            fs::read(to.join("a/b/preallocated")).expect("is there"),
            preallocated
        );
        assert!(to.join("empty").is_dir() && to.join("a/nothing").is_file());
        assert!(!to.join("LOCK").exists());
        assert_eq!(pack(&to, |_| false).expect("packs"), packed);
        let cut = zstd::encode_all(&zstd::decode_all(&packed[..]).expect("zstd")[..40], 3).expect("zstd");
        assert!(
            unpack(&cut, &place.path().join("cut")).is_err(),
            "a truncated archive is an error"
        );
    }
}
