import java.io.File;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * This machine's files under the scheme `hanging`. While the file that the property `hanging.while` names exists, no
 * file can be created: the call does not return, and no interrupt ends it, as with a hard mount whose server is away.
 */
public class HangingFileSystem extends RawLocalFileSystem {
    @Override
    public URI getUri() {
        return URI.create("hanging:///");
    }

    @Override
    public String getScheme() {
        return "hanging";
    }

    @Override
    public FSDataOutputStream create(Path path, boolean overwrite, int bufferSize, short replication, long blockSize,
            Progressable progress) throws IOException {
        hang();
        return super.create(path, overwrite, bufferSize, replication, blockSize, progress);
    }

    @Override
    public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long blockSize, Progressable progress) throws IOException {
        hang();
        return super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress);
    }

    private void hang() {
        File sign = new File(getConf().get("hanging.while"));
        boolean interrupted = false;
        while (sign.exists()) {
            try {
                Thread.sleep(100);
            } catch (InterruptedException error) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
