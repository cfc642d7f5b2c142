//! A recorder with a tap that is fed by hand.

use super::*;
use zc_cache::seam::{Request, RequestKind};
use zc_core::{BufId, Codec, Fingerprint, ReqId, VolumeId};
use zc_recording::Share;
use zc_trace::{Op, Options, Reader};

const HEADER: Header = Header { extent_bytes: 4096, volume_bytes: 1 << 30, share: Share::WHOLE, began_s: 7 };

struct Stage {
    tap: Box<Tap>,
    recorder: Recorder,
    dir: tempfile::TempDir,
    requests: u64,
}

impl Stage {
    fn new(max_bytes: u64, duration_ms: Option<u64>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let progress = Progress::new(path.clone(), Share::WHOLE, max_bytes, duration_ms);
        let (mut tap, recorder) = start(create(&path).unwrap(), &HEADER, progress, Clock::new()).unwrap();
        tap.began_ns = Some(0);
        Self { tap, recorder, dir, requests: 0 }
    }

    fn read(&mut self, block: u64) {
        self.requests += 1;
        let request = Request {
            req: ReqId(self.requests),
            volume: VolumeId(0),
            offset_bytes: block * 4096,
            len_bytes: 4096,
            kind: RequestKind::Read { buf: BufId(1) },
        };
        self.tap.asked(&request, self.requests * 1000);
    }

    fn end(self) -> (Arc<Progress>, Vec<zc_trace::Request>, Reader) {
        let Self { tap, mut recorder, dir, .. } = self;
        recorder.progress.asked.store(true, Ordering::Relaxed);
        drop(tap);
        recorder.join();
        let mut reader = Reader::open(&dir.path().join("trace"), Options::default()).unwrap();
        let requests = reader.by_ref().map(Result::unwrap).collect();
        (recorder.progress, requests, reader)
    }
}

#[test]
fn requests_and_contents_reach_the_file() {
    let mut stage = Stage::new(1 << 20, None);
    let print = Digest::Print(Fingerprint([7; 32]));
    stage.read(5);
    stage.tap.learned(5, print, Some((Codec::Lz4, 900)));
    stage.read(6);
    stage.tap.learned(6, print, None);
    stage.read(5);
    stage.read(7);
    stage.tap.learned(7, Digest::Zero, None);
    let (progress, requests, reader) = stage.end();
    let blocks: Vec<u64> = requests.iter().map(|request| request.offset_bytes / 4096).collect();
    assert_eq!(blocks, [5, 6, 5, 7]);
    assert!(requests.iter().all(|request| (request.op, request.len_bytes) == (Op::Read, 4096)));
    let [first, second, third, zero] = [0, 1, 2, 3].map(|at: usize| requests[at].content);
    assert_eq!(first.unwrap().fingerprint, second.unwrap().fingerprint);
    assert_ne!(first.unwrap().fingerprint, u128::from_le_bytes([7; 16]), "not the cache's own");
    assert_eq!((first.unwrap().lz4_bytes, third), (Some(900), None));
    assert!(zero.is_some());
    let end = reader.recorded().unwrap().end.unwrap();
    assert_eq!((end.why, end.requests, end.lost, end.known), (Ended::Asked, 4, 0, 3));
    assert_eq!((reader.bad_count(), progress.has_ended()), (0, true));
    let json = progress.to_json("disk");
    assert_eq!(
        (&json["ended"], &json["requests"], &json["known_extents"]),
        (&"asked".into(), &4.into(), &3.into())
    );
}

#[test]
fn prints_of_two_recordings_have_nothing_in_common() {
    let prints = [(), ()].map(|()| {
        let mut stage = Stage::new(1 << 20, None);
        stage.read(1);
        stage.tap.learned(1, Digest::Print(Fingerprint([9; 32])), None);
        stage.end().1[0].content.unwrap().fingerprint
    });
    assert_ne!(prints[0], prints[1]);
}

#[test]
fn a_file_that_has_its_size_ends_whole() {
    let mut stage = Stage::new(20_000, None);
    while !stage.tap.is_over() {
        (0..1000).for_each(|number| stage.read(number * 977));
        stage.tap.hand_over();
    }
    let (progress, requests, reader) = stage.end();
    let bytes = progress.bytes.load(Ordering::Relaxed);
    assert!((15_000..=20_000).contains(&bytes), "{bytes}");
    let end = reader.recorded().unwrap().end.unwrap();
    assert_eq!((end.why, reader.bad_count()), (Ended::Size, 0));
    assert_eq!(end.requests, u64_from_usize(requests.len()));
}

#[test]
fn time_ends_a_recording() {
    let mut stage = Stage::new(1 << 20, Some(0));
    stage.recorder.join();
    stage.read(1);
    stage.tap.hand_over();
    assert!(stage.tap.is_over());
    let (_, requests, reader) = stage.end();
    assert_eq!((requests.len(), reader.recorded().unwrap().end.unwrap().why), (0, Ended::Time));
}

#[test]
fn no_file_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    drop(create(&path).unwrap());
    assert_eq!(create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
    assert_eq!(create(&dir.path().join("link")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}
