/** Outside Effect: this is the data path. */
import { Socket } from "node:net"

type WriteDone = (error?: Error | null) => void

/**
 * A socket on which a failed write does not end the reading: an app that answers early and hangs up is still heard.
 * What is written after a failure is dropped; the reading side tells when the connection ends.
 */
export class ForgivingSocket extends Socket {
  writeFailed = false
  #done: WriteDone | undefined
  #forgiving: WriteDone = () => undefined

  override _write(chunk: unknown, encoding: BufferEncoding, done: WriteDone): void {
    if (this.writeFailed) done()
    else super._write(chunk, encoding, this.#forgive(done))
  }

  override _writev(chunks: Array<{ chunk: unknown; encoding: BufferEncoding }>, done: WriteDone): void {
    if (this.writeFailed) done()
    else super._writev?.(chunks, this.#forgive(done))
  }

  /** Streams give the same function with each write, so that one wrapper does for all. */
  #forgive(done: WriteDone): WriteDone {
    if (done !== this.#done) {
      this.#done = done
      this.#forgiving = (error) => {
        if (error) this.writeFailed = true
        done()
      }
    }
    return this.#forgiving
  }
}
